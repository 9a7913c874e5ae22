"""pyspark's daemon, from which Python workers are forked, with three changes.

Workers end with the daemon; they print no traceback then; they collect no garbage in modules, and
seldom among messages. Spark starts it by `spark.python.daemon.module`. It imports what workers
need, once for all of them, but nothing that starts threads, such as pyarrow: threads do not survive
a fork.
"""

import gc
import importlib
import logging
import os
import socket
import sys

from pyspark import daemon

from nats_logship.app.parent_death import die_with

_SHARED = ("pyspark.worker", "receiver.consume.task")
_work = daemon.worker
_frozen = False
_daemon = os.getpid()
_SOME_OBJECTS = 20_000  # no cycles; by default each 700 are looked at: an eighth of a drain's CPU


def _worker(sock: socket.socket, authenticated: bool) -> int:
    global _frozen
    # pyspark's SIGHUP misses a worker that is just being forked, and a killed daemon sends none
    die_with(_daemon)
    try:
        code = _work(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the JVM has ended, or given this worker up: nobody reads an error
    if not _frozen:
        # pyspark collects garbage after every task; modules never are garbage
        gc.collect()
        gc.freeze()
        _frozen = True
    return code


if __name__ == "__main__":
    # nats-py imports aiohttp, for web sockets, if it is installed: 0.2 s of a start, and 10 MiB
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    gc.disable()  # collecting during imports costs a tenth of their time
    # the driver logs what a task reports; a worker logs only unexpected errors
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()  # workers then share these pages with the daemon
    gc.enable()
    gc.set_threshold(_SOME_OBJECTS)
    daemon.worker = _worker
    daemon.manager()
