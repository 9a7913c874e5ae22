"""The process that Spark's Python workers are forked from: pyspark's own, but quiet at the end and cheap between tasks.

Spark starts it by name (`spark.python.daemon.module`). What all workers need is imported here, once for all of them.
Nothing may be imported that starts threads, pyarrow among them: they would not live on in the workers.
"""

import gc
import importlib
import logging
import os
import socket
from collections.abc import Mapping

from pyspark import daemon

from broker.app.logs import FORMATS
from broker.app.memory import keep_large_buffers

__all__ = ["LOG_FORMAT", "LOG_LEVEL", "set_up_log"]

LOG_FORMAT, LOG_LEVEL = "LOGSHIP_WORKER_LOG_FORMAT", "LOGSHIP_WORKER_LOG_LEVEL"
"""The variables by which the program tells its workers how to log: their standard error is its own."""
_SHARED = ("pyspark.worker", "receiver.consume.task")
_work = daemon.worker
_frozen = False


def set_up_log(environment: Mapping[str, str]) -> None:
    """Log to standard error from now on as the program does, or as text where nothing is said."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[environment.get(LOG_FORMAT, "text")]())
    logging.basicConfig(level=environment.get(LOG_LEVEL, "WARNING"), handlers=[handler])
    # what it reports reaches us as errors and is said once there
    logging.getLogger("nats").setLevel(logging.CRITICAL)


def _worker(sock: socket.socket, authenticated: bool) -> int:
    global _frozen
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
    keep_large_buffers()
    set_up_log(os.environ)
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()  # what is never collected is never copied either
    daemon.worker = _worker
    daemon.manager()
