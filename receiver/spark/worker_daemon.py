"""The process that Spark's Python workers are forked from: pyspark's own, but quiet at the end and cheap between tasks.

Spark starts it by name (`spark.python.daemon.module`). What all workers need is imported here, once for all of them.
Nothing may be imported that starts threads, pyarrow among them: they would not live on in the workers.
"""

import gc
import importlib
import os
import socket

from pyspark import daemon

from broker.app.memory import keep_large_buffers
from receiver.spark.worker_log import set_up_log

_SHARED = ("pyspark.worker", "receiver.consume.task")
_work = daemon.worker
_frozen = False


def _worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        code = _work(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the JVM has ended, or given this worker up: nobody is left to be told
    _freeze()
    return code


def _freeze() -> None:
    # pyspark collects garbage after every task; what was imported for the first one never is garbage
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True


if __name__ == "__main__":
    keep_large_buffers()
    set_up_log(os.environ)
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()  # what is never collected is never copied either
    daemon.worker = _worker
    daemon.manager()
