"""`logreceiver prepare`: keeps Spark's classes in a file before the first start. Receives nothing."""

import shutil
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.files import make_folder, replacing
from receiver.spark.java import Java, class_data, recorded
from receiver.spark.jvm import scratch_folder
from receiver.spark.session import spark_context

__all__ = ["prepare"]

_WRITING = 300.0  # seconds, for a slow machine; a quick one takes ten


def prepare(java: Java) -> Path:
    """Start Spark once, keep its classes in a file that later starts find, and return its path.

    It appears whole or not at all. Raises OperatorError kinds.
    """
    path = class_data(java)
    try:
        with make_folder(path.parent, 0o755) as target, scratch_folder() as folder:
            fresh = folder / path.name
            options = recorded(java, fresh)
            with spark_context("local[1]", options=options, end_within=_WRITING) as spark:
                spark.parallelize([0], 1).map(str).collect()
            if not fresh.exists():
                raise OperatorError(f"Java {java.version} has written no class data")
            with replacing(target, path.name, 0o644) as half, fresh.open("rb") as written:
                shutil.copyfileobj(written, half.file)
    except OSError as error:
        raise OperatorError(
            f"cannot write {error.filename or path}: {error.strerror}; run this as the user who installed logship"
        ) from None
    return path
