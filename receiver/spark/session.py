"""A SparkContext with few processes, little memory, no user interface and no output.

On a cluster the master has to answer first, as Spark itself takes a minute to report that none
does. Executors get our packages; they need a Python of the same minor version and platform.
"""

import importlib.util
import logging
import os
import re
import shutil
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import make_folder, write_atomic
from nats_logship.app.python import INTERPRETER, SAFE_PATH
from receiver.spark.java import Java, class_data, is_local
from receiver.spark.jvm import Jvm, connect_jvm, explain_refusals, run_jvm, scratch_folder

_ATTEMPTS = 4  # at a task, as on a cluster
_STANDALONE = "spark://"
_LOCAL = re.compile(r"local\[([1-9][0-9]*)(?:,[0-9]+)?\]")
_FIRST_EXECUTOR, _AGAIN = 10.0, 0.1  # seconds
_PATIENCE = 5.0  # seconds for a connection to a master
_FOLDER = "logship"  # in an executor's own, where Spark unpacks the archive
_PACKED = (
    *("nats_logship", "receiver", "nats", "zstandard", "msgspec", "re2"),
    *("nacl", "cffi", "_cffi_backend"),
)
"""Packages that executors get if they are installed here; `nacl` is an extra, for keys."""

_SETTINGS = {
    "spark.app.name": "logreceiver",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.killEnabled": "false",  # else anybody could end our jobs on its page
    "spark.speculation": "false",  # a second attempt would wait for the lock of the first
    "spark.python.worker.reuse": "true",  # workers keep their connections
    "spark.python.daemon.module": "receiver.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",  # 40 ms less per hop than TCP on loopback
    "spark.locality.wait": "0s",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # without Hadoop's native library the default file system forks a chmod for every file
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # Workers keep freed buffers of some MiB for the next batch. By default glibc returns them to
    # the kernel, which zeroes the pages again: to receive 706 MB then takes 2.3 to 3.0 s of CPU
    # instead of 1.7 to 2.1 (two busy cores), and seven times the page faults.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),  # glibc's maximum
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",  # one heap: each of many would keep buffers
}
_CLUSTER = {
    "spark.executorEnv.PYTHONPATH": _FOLDER,  # where Spark unpacks the archive
    f"spark.executorEnv.{SAFE_PATH}": "1",
    "spark.executor.memory": "512m",  # lines do not pass through its JVM
}


def _configuration(
    master: str, slots: int | None, scratch: Path, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return all settings; those of `conf` win."""
    own = _CLUSTER | ({"spark.cores.max": str(slots)} if slots else {})
    if is_local(master):
        master = f"local[{slots},{_ATTEMPTS}]" if slots else master
        own = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # executor and driver are one process: a heartbeat only costs processor time
            "spark.executor.heartbeatInterval": "60s",
            "spark.network.timeout": "600s",  # a machine that was asleep has missed heartbeats
            # other users of this machine reach Spark's ports; Spark makes a secret for each start
            "spark.authenticate": "true",
            "spark.local.dir": str(scratch),
            "spark.python.unix.domain.socket.dir": str(scratch),
        }
    return {
        **_SETTINGS,
        **own,
        "spark.master": master,
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        **conf,
    }


def _make_conf(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    return conf


@contextmanager
def spark_context(
    master: str,
    slots: int | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    executor_python: str = "python3",
    jvm: Jvm | None = None,
) -> Iterator[SparkContext]:
    """Start a SparkContext, in `jvm` or in a new JVM, and end it; one at a time in a process.

    `slots` is how many tasks run at once, in a whole cluster. `conf` adds Spark settings. Executors
    of a cluster run our packages with `executor_python`, of our own minor version. Raises
    `ConfigurationError` without a Java or for a wrong setting, `OperatorError` if Spark does not
    start, or no master answers.
    """
    # py4j logs what it raises, some of it to the root logger
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # a logger keeps an equal filter once
    check_masters(master)
    with ExitStack() as stack:
        jvm = jvm or stack.enter_context(run_jvm(master))
        folder, gateway = jvm.scratch, stack.enter_context(connect_jvm(jvm))
        settings = _configuration(master, slots, folder, conf or {})
        try:
            with explain_refusals(master, gateway.proc):
                context = SparkContext(conf=_make_conf(settings), gateway=gateway)
            context.pythonExec = INTERPRETER if is_local(master) else executor_python
            # if the JVM dies the job raises an error; no traceback of this thread besides
            context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            try:
                if not is_local(master):
                    with explain_refusals(master):
                        context.addArchive(f"{pack_for_executors(folder)}#{_FOLDER}")
                yield context
            finally:
                with suppress(OSError, Py4JError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # the JVM may have died
                    context.stop()
        finally:  # the next context has another JVM
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
            sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(folder))]


def count_local_slots(master: str) -> int:
    """Return how many tasks run at once: as `local[N]` says, else a task per core.

    0 for a cluster: it decides.
    """
    if not is_local(master):
        return 0
    named = _LOCAL.fullmatch(master)
    return int(named[1]) if named else len(os.sched_getaffinity(0))


def count_slots(spark: SparkContext, most: int) -> int:
    """Return how many tasks a Spark runs at once, at least 1 and at most `most`.

    Waits some seconds for the first executor of a cluster.
    """
    give_up = time.monotonic() + _FIRST_EXECUTOR
    while not (found := count_tasks(spark)) and time.monotonic() < give_up:
        time.sleep(_AGAIN)
    return max(1, min(found, most))


def count_tasks(spark: SparkContext) -> int:
    """Return how many tasks a Spark runs at once now, 0 if it has no executor or does not say."""
    with suppress(Py4JError, OSError):
        context = spark._jsc.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))
    return 0


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def prepare(java: Java) -> Path:
    """Write the file with Spark's classes that later starts use, and return its path.

    The file appears whole or not at all, and replaces those of other installations for this Java.
    Raises OperatorError.
    """
    path = class_data(java)
    try:
        make_folder(path.parent, 0o755).close()
        with scratch_folder() as folder:
            fresh = folder / path.name
            with run_jvm("local[1]", fresh) as jvm, spark_context("local[1]", jvm=jvm) as spark:
                spark.parallelize([0], 1).map(str).collect()
            write_atomic(path, fresh.read_bytes(), 0o644)
        for old in path.parent.glob(f"spark-*-java-{java.version}.jsa"):
            if old != path:
                old.unlink(missing_ok=True)
    except OSError as error:
        raise OperatorError(
            f"cannot write {error.filename or path}: {error.strerror}; run this as the user who "
            "installed logship"
        ) from None
    return path


def check_masters(master: str, patience: float = _PATIENCE) -> None:
    """Return once one of the masters of `spark://host:port,host:port` takes a connection.

    Other kinds of URLs are not checked. Each master has `patience` seconds. Raises OperatorError if
    none answers, `ConfigurationError` for a wrong address.
    """
    if not master.startswith(_STANDALONE):
        return
    refusals = []
    for part in master.removeprefix(_STANDALONE).split(","):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(
                f"{master} is no address of a Spark master; give --master spark://host:port"
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), patience).close()
        except (OSError, UnicodeError, OverflowError) as error:
            refusals.append(f"{part}: {getattr(error, 'strerror', '') or error}")
        else:
            return
    raise OperatorError(
        f"no Spark master answers at {master}: {'; '.join(refusals)}; start it, or give another "
        "--master"
    )


def pack_for_executors(folder: Path) -> Path:
    """Write an archive with the packages that executors need; return its path."""
    packed = folder / _FOLDER
    packed.mkdir()
    for name in _PACKED:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        if spec.submodule_search_locations is None:
            shutil.copy(spec.origin, packed)
            continue
        useless = shutil.ignore_patterns("__pycache__", "tests")
        shutil.copytree(Path(spec.origin).parent, packed / name, ignore=useless)
    return Path(shutil.make_archive(str(packed), "zip", packed))
