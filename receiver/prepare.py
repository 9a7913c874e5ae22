"""`logreceiver prepare`: what a machine can have ready before the first start. Receives nothing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.folder import make_folder
from broker.app.whole import replacing
from receiver.driver.runner import warm_up
from receiver.spark.classdata import class_data, recorded
from receiver.spark.java import Java
from receiver.spark.scratch import scratch_folder
from receiver.spark.session import spark_context

__all__ = ["prepare"]

_WRITING = 300.0  # seconds, for a slow machine; a quick one takes ten


def prepare(java: Java) -> Path:
    """Start Spark once, keep its classes in a file that later starts find, and return its path.

    It appears whole or not at all. Raises OperatorError kinds.
    """
    path = class_data(java)
    with (
        _told(path),
        make_folder(path.parent, 0o755) as target,
        scratch_folder() as folder,
    ):
        fresh = folder / path.name
        with spark_context(
            "local[1]",
            slots=1,
            scratch=folder,
            options=recorded(java, fresh),
            end_within=_WRITING,
        ) as spark:
            warm_up(spark, 1)
        if not fresh.exists():
            raise OperatorError(f"Java {java.version} has written no class data")
        with replacing(target, path.name, 0o644) as half, fresh.open("rb") as written:
            shutil.copyfileobj(written, half.file)
    return path


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"cannot write {error.filename or path}: {error.strerror}; run this as the user who installed logship"
        ) from None
