"""The process that Spark's Python workers are forked from: pyspark's own, but its workers end with it, say nothing then, and are cheap between tasks.

Spark starts it by name (`spark.python.daemon.module`). What all workers need is imported here, once for all of them.
Nothing may be imported that starts threads, pyarrow among them: they would not live on in the workers.
"""

import gc
import importlib
import logging
import os
import socket
import sys

from pyspark import daemon

from nats_logship.app.memory import keep_large_buffers
from nats_logship.app.parent_death import die_with

_SHARED = ("pyspark.worker", "receiver.consume.task")
_work = daemon.worker
_frozen = False
_daemon = os.getpid()


def _worker(sock: socket.socket, authenticated: bool) -> int:
    global _frozen
    # pyspark's SIGHUP does not reach a worker that is just being forked, nor comes from a killed daemon
    die_with(_daemon)
    try:
        code = _work(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the JVM has ended, or given this worker up: nobody is left to be told
    if not _frozen:
        # pyspark collects garbage after every task; what was imported for the first one never is garbage
        gc.collect()
        gc.freeze()
        _frozen = True
    return code


if __name__ == "__main__":
    # nats-py imports aiohttp where it is installed, for web sockets: 0.2 s of a start, and 10 MiB
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    gc.disable()  # what is imported stays; to look for garbage in it costs a tenth of the time
    keep_large_buffers()
    # what happens in a task is reported and logged by the program: only what nobody has foreseen is said here
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()  # what is never collected is never copied either
    gc.enable()
    daemon.worker = _worker
    daemon.manager()
