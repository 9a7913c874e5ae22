"""Java's classes of Spark, loaded once and kept in a file: a start that finds it takes half as long.

The file belongs to one Java, one Spark and one set of options. Where it does not fit, Java goes on without it.
"""

import sys
from pathlib import Path

import pyspark

from receiver.spark.java import Java

__all__ = ["class_data", "recorded", "used"]

_QUIET = ("-Xlog:disable",)  # of a file that does not fit nothing is said: Java goes on without it
_AHEAD_OF_TIME = 24  # JEP 483; one step since JEP 514 (25)


def class_data(java: Java) -> Path:
    """Return where the file for a Java is, or would be: with the packages, as it is of as much use as they are."""
    suffix = "aot" if java.release >= _AHEAD_OF_TIME else "jsa"
    folder = Path(sys.prefix) / "var" / "cache" / "logship"
    return folder / f"spark-{pyspark.__version__}-java-{java.version}.{suffix}"


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
