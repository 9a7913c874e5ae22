"""Spark as this program wants it: few processes, little memory, no user interface, quiet. Decides nothing about jobs.

On a cluster: a master that answers before a JVM is started for it (Spark itself says only after a minute that none is there), and
our packages for its executors, which need a Python of the same minor version and platform, and nothing of ours installed.
"""

import importlib.util
import logging
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import make_folder, write_atomic
from nats_logship.app.python import INTERPRETER, SAFE_PATH
from receiver.spark.java import (
    Java,
    Jvm,
    class_data,
    connect_jvm,
    is_local,
    refusals_told,
    run_jvm,
    scratch_folder,
)

_ATTEMPTS = 4  # at a task, as on a cluster
_STANDALONE = "spark://"
_PATIENCE = 5.0  # seconds for a connection to a master
_FOLDER = "logship"  # in an executor's own, where Spark unpacks the archive
_PACKED = ("nats_logship", "receiver", "nats", "zstandard", "nacl", "cffi", "_cffi_backend")
"""What executors get, as far as it is here: `nacl` signs with keys, and is an extra."""

_SETTINGS = {
    "spark.app.name": "logreceiver",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.killEnabled": "false",  # whoever reaches the page could end our jobs
    "spark.speculation": "false",  # an attempt beside another would have to wait for its lock
    "spark.python.worker.reuse": "true",  # connections stay open in it
    "spark.python.daemon.module": "receiver.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",  # 40 ms less per hop than TCP on loopback
    "spark.locality.wait": "0s",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # without Hadoop's native library the checksumming file system forks chmod for every file it makes
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
_CLUSTER = {
    "spark.executorEnv.PYTHONPATH": _FOLDER,  # from an executor's own folder, where the archive is unpacked
    f"spark.executorEnv.{SAFE_PATH}": "1",
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.executor.memory": "512m",  # lines never cross it
}


def _configuration(
    master: str, slots: int | None, scratch: Path, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole configuration; what `conf` says wins."""
    own = _CLUSTER | ({"spark.cores.max": str(slots)} if slots else {})
    if is_local(master):
        master = f"local[{slots},{_ATTEMPTS}]" if slots else master
        own = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # other users of this machine reach the ports there; Spark makes a secret anew for each start, and keeps it to itself
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


@contextmanager
def spark_context(
    master: str,
    slots: int | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    executor_python: str = "python3",
    jvm: Jvm | None = None,
) -> Iterator[SparkContext]:
    """Start a SparkContext in a JVM, that which runs or one of its own, and end it; one at a time per process, as often as wanted.

    `slots` is how many tasks run at once, in all of a cluster. `conf` adds Spark settings. The executors of a cluster are sent
    our packages and run them with `executor_python`, of our own minor version. Raises `ConfigurationError` without a Java or
    for a wrong setting, `OperatorError` when Spark does not start, or no master takes us.
    """
    # all that py4j says is raised too, where a job is waited for; of a JVM that died some goes to the root logger
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # which a logger has once at most
    check_masters(master)
    with ExitStack() as stack:
        jvm = jvm or stack.enter_context(run_jvm(master))
        folder, gateway = jvm.scratch, stack.enter_context(connect_jvm(jvm))
        settings = SparkConf(loadDefaults=False)
        for key, value in _configuration(master, slots, folder, conf or {}).items():
            settings.set(key, value)
        try:
            with refusals_told(master, gateway.proc):
                context = SparkContext(conf=settings, gateway=gateway)
            context.pythonExec = INTERPRETER if is_local(master) else executor_python
            # the JVM's death raises where a job is waited for; no traceback besides
            context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            try:
                if not is_local(master):
                    with refusals_told(master):
                        context.addArchive(f"{pack_for_executors(folder)}#{_FOLDER}")
                yield context
            finally:
                with suppress(OSError, Py4JError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # the JVM may have died
                    context.stop()
        finally:  # the next start has a JVM of its own
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
            sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(folder))]


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def prepare(java: Java) -> Path:
    """Start Spark once, keep its classes in a file that later starts find, and return its path: `logreceiver prepare`.

    The file appears whole or not at all. Raises OperatorError kinds.
    """
    path = class_data(java)
    try:
        make_folder(path.parent, 0o755).close()
        with scratch_folder() as folder:
            fresh = folder / path.name
            with run_jvm("local[1]", fresh) as jvm, spark_context("local[1]", jvm=jvm) as spark:
                spark.parallelize([0], 1).map(str).collect()
            write_atomic(path, fresh.read_bytes(), 0o644)
    except OSError as error:
        raise OperatorError(
            f"cannot write {error.filename or path}: {error.strerror}; run this as the user who installed logship"
        ) from None
    return path


def check_masters(master: str, patience: float = _PATIENCE) -> None:
    """Return as soon as one of the masters of `spark://host:port,host:port` takes a connection; any other URL is not asked.

    Each is given `patience` seconds. Raises OperatorError saying why none does, `ConfigurationError` for any other address.
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
        f"no Spark master answers at {master}: {'; '.join(refusals)}; start it, or give another --master"
    )


def pack_for_executors(folder: Path) -> Path:
    """Write the archive of what executors need into a folder, and return its path."""
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
