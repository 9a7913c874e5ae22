"""Spark as this program wants it: few processes, little memory, no user interface, quiet. Decides nothing about jobs.

On a cluster: a master that answers before a JVM is started for it (Spark itself says only after a minute that none is there), and
our packages for its executors, which need a Python of the same minor version and platform, and nothing of ours installed.
"""

import asyncio
import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import sys
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import make_folder, replacing
from broker.app.logs import JsonLines
from receiver.spark.java import (
    END_WITHIN,
    Java,
    class_data,
    class_options,
    death_told,
    find_java,
    gateway_to_jvm,
    scratch_folder,
)
from receiver.spark.worker_daemon import LOG_FORMAT, LOG_LEVEL

__all__ = [
    "check_masters",
    "is_local",
    "local_master",
    "prepare",
    "spark_configuration",
    "spark_context",
    "watch_jvm",
    "worker_environment",
]

_ATTEMPTS = 4
_WRITING = 300.0  # seconds for the file of classes on a slow machine; a quick one takes ten
_LOOK = 1.0  # seconds
_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)\])?")
_STANDALONE = "spark://"
_PATIENCE = 5.0  # seconds for a connection to a master
_FOLDER = "logship"  # in an executor's own, where Spark unpacks the archive
_PACKED = ("broker", "receiver", "nats", "zstandard")
_WHERE_THERE = ("nacl", "cffi", "_cffi_backend")  # keys are signed with it; an extra

_GIVEN_UP = (
    "NullPointerException",
    "IllegalStateException",
)  # of a context that stopped in its start
_WRONG = ("IllegalArgumentException", "NumberFormatException")

_SETTINGS = {
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
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.executor.memory": "512m",  # lines never cross it
}


def local_master(master: str, slots: int | None = None) -> str:
    """Return `local[N,4]` for any of `local`, `local[N]` and `local[*]`: a task is tried four times, as on a cluster.

    `slots` goes before N; any other master is returned as it is.
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return master
    count = {None: "1", "*": str(len(os.sched_getaffinity(0)))}.get(found[1], found[1])
    return f"local[{slots or count},{_ATTEMPTS}]"


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM, and so on this machine."""
    return master.startswith("local")


def spark_configuration(
    master: str, app_name: str, slots: int | None, scratch: Path, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole configuration; what `conf` says wins."""
    chosen = local_master(master, slots)
    cores = {"spark.cores.max": str(slots)} if slots else {}
    local = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # other users of this machine reach the ports there; Spark makes a secret anew for each start, and keeps it to itself
        "spark.authenticate": "true",
        "spark.local.dir": str(scratch),
        "spark.python.unix.domain.socket.dir": str(scratch),
    }
    return {
        **_SETTINGS,
        **{f"spark.executorEnv.{name}": value for name, value in worker_environment().items()},
        **(local if is_local(chosen) else _CLUSTER | cores),
        "spark.master": chosen,
        "spark.app.name": app_name,
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        **conf,
    }


@contextmanager
def spark_context(
    master: str,
    *,
    app_name: str = "logreceiver",
    slots: int | None = None,
    conf: Mapping[str, str] | None = None,
    executor_python: str = "python3",
    options: Sequence[str] | None = None,
    end_within: float = END_WITHIN,
) -> Iterator[SparkContext]:
    """Start a JVM with a SparkContext in it, and end both; one at a time per process, as often as wanted.

    `slots` is how many tasks run at once: with a local master the size of its pool, on a cluster the most cores that
    are asked for. `conf` adds Spark settings. The executors of a cluster are sent our packages and run them with `executor_python`, of our own minor version. Raises
    `ConfigurationError` without a Java or for a wrong setting, OperatorError when Spark does not start, when no master of the
    cluster is there, or when it does not take us within a minute, `OperatorError`.

    `options` are for the JVM instead of those that use kept class data; it is given `end_within` seconds to end.
    """
    _quieten_py4j()
    check_masters(master)
    java = find_java(os.environ)
    chosen = class_options(java) if options is None else options
    # what Spark says where goes by this variable, its user interface too
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(master) else {}
    with (
        scratch_folder() as folder,
        gateway_to_jvm(java, folder, chosen, os.environ | local, end_within) as gateway,
    ):
        settings = SparkConf(loadDefaults=False)
        for key, value in spark_configuration(master, app_name, slots, folder, conf or {}).items():
            settings.set(key, value)
        try:
            with _interrupts_kept(), death_told(gateway.proc), _refusals_told(master):
                context = SparkContext(conf=settings, gateway=gateway)
            context.pythonExec = sys.executable if is_local(master) else executor_python
            # the JVM's death raises where a job is waited for; no traceback besides
            context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            try:
                if not is_local(master):
                    with _refusals_told(master):
                        context.addArchive(f"{_pack(folder)}#{_FOLDER}")
                yield context
            finally:
                _stop(context)
        finally:
            SparkContext._gateway = SparkContext._jvm = None  # the next start has a JVM of its own
            sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(folder))]


def prepare(java: Java) -> Path:
    """Start Spark once, keep its classes in a file that later starts find, and return its path: `logreceiver prepare`.

    It appears whole or not at all. Raises OperatorError kinds.
    """
    path = class_data(java)
    try:
        with make_folder(path.parent, 0o755) as target, scratch_folder() as folder:
            fresh = folder / path.name
            options = class_options(java, fresh)
            with spark_context("local[1]", options=options, end_within=_WRITING) as spark:
                spark.parallelize([0], 1).map(str).collect()
            if not fresh.exists():
                raise OperatorError(f"Java {java.version} has written no class data")
            with replacing(target, path.name, 0o644) as half, fresh.open("rb") as written:
                shutil.copyfileobj(written, half)
    except OSError as error:
        raise OperatorError(
            f"cannot write {error.filename or path}: {error.strerror}; run this as the user who installed logship"
        ) from None
    return path


async def watch_jvm(spark: SparkContext) -> None:
    """Never return; raises `OperatorError` when the JVM has ended, which a program without a job would not notice."""
    process = spark._gateway.proc  # type: ignore[union-attr]
    while True:
        if (code := process.poll()) is not None:
            raise OperatorError(f"Spark's Java process has died ({code}); start again")
        await asyncio.sleep(_LOOK)


@contextmanager
def _refusals_told(master: str) -> Iterator[None]:
    """Do what Spark may refuse; raises OperatorError with its words, `ConfigurationError` where a setting is wrong."""
    try:
        yield
    except Py4JJavaError as error:
        refused = error.java_exception
        kind, words = refused.getClass().getSimpleName(), str(refused.getMessage())
    else:
        return
    if kind in _GIVEN_UP and not is_local(master):
        raise OperatorError(
            f"{master} has not taken us: is it up, reached from here, and given the secret that it asks for "
            "(spark.authenticate)? start again"
        )
    message = f"Spark does not start: {' '.join(words.split())}; look at --spark-conf"
    raise ConfigurationError(message) if kind in _WRONG else OperatorError(message)


def _quieten_py4j() -> None:
    # all that it says is raised too, where a job is waited for; of a JVM that died some goes to the root logger
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _stop(context: SparkContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that the JVM has died is known by then
        try:
            context.stop()
        except (OSError, Py4JError):
            # it left off at a JVM that is gone, or at a socket that a disk does not remove; both go with the scratch folder
            context._accumulatorServer = None  # type: ignore[assignment]
            context.stop()


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    # Spark puts its own handler for SIGINT in place; signals are the program's to handle
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def worker_environment() -> dict[str, str]:
    """Return what a worker's environment needs for a log such as this process has now, warnings and worse only."""
    root = logging.getLogger()
    is_json = any(isinstance(handler.formatter, JsonLines) for handler in root.handlers)
    level = max(root.level, logging.WARNING)  # what goes well, a dozen workers would say as often
    return {LOG_FORMAT: "json" if is_json else "text", LOG_LEVEL: logging.getLevelName(level)}


def check_masters(master: str, patience: float = _PATIENCE) -> None:
    """Return as soon as one of the masters of `spark://host:port,host:port` takes a connection; any other URL is not asked.

    Each is given `patience` seconds. Raises OperatorError saying why none does, `ConfigurationError` for what is no such
    address.
    """
    if not master.startswith(_STANDALONE):
        return
    refusals = []
    for host, port in [
        _address(part, master) for part in master.removeprefix(_STANDALONE).split(",")
    ]:
        try:
            socket.create_connection((host, port), patience).close()
        except (OSError, UnicodeError) as error:
            refusals.append(f"{host}:{port}: {getattr(error, 'strerror', '') or error}")
        else:
            return
    raise OperatorError(
        f"no Spark master answers at {master}: {'; '.join(refusals)}; start it, or give another --master"
    )


def _address(part: str, master: str) -> tuple[str, int]:
    with suppress(ValueError):
        parsed = urlsplit(f"//{part}")
        if parsed.hostname and parsed.port:
            return parsed.hostname, parsed.port
    raise ConfigurationError(
        f"{master} is no address of a Spark master; give --master spark://host:port"
    )


def _pack(folder: Path) -> Path:
    """Write the archive into a folder and return its path; raises `OperatorError` when there is no room for it."""
    archive = folder / f"{_FOLDER}.zip"
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for path, name in _contents():
                file.write(path, name)
    except OSError as error:
        raise OperatorError(
            f"cannot write {archive} for the executors: {error.strerror or error}"
        ) from None
    return archive


def _contents() -> Iterator[tuple[Path, str]]:
    for package in map(Path, (*_PACKED, *_WHERE_THERE)):
        spec = importlib.util.find_spec(package.name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            yield origin, origin.name
            continue
        for path in sorted(origin.parent.rglob("*")):
            inner = path.relative_to(origin.parent)
            if path.is_file() and not {"__pycache__", "tests"}.intersection(inner.parts):
                yield path, str(package / inner)
