"""What the executors of a cluster need to run our tasks, in one archive that Spark brings to them. Runs nothing.

An executor then needs a Python of the same minor version and platform, and nothing of ours installed.
"""

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path

from broker.app.exits import OperatorError

__all__ = ["FOLDER", "pack"]

FOLDER = "logship"
"""The name of the folder, in an executor's own, in which Spark unpacks the archive."""

_NEEDED = ("broker", "receiver", "nats", "zstandard")
_WHERE_THERE = ("nacl", "cffi", "_cffi_backend")  # keys are signed with it; an extra
_SKIPPED = {"__pycache__", "tests"}


def pack(folder: Path) -> Path:
    """Write the archive into a folder and return its path; raises `OperatorError` when there is no room for it."""
    archive = folder / f"{FOLDER}.zip"
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
    for package in map(Path, (*_NEEDED, *_WHERE_THERE)):
        spec = importlib.util.find_spec(package.name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            yield origin, origin.name
            continue
        for path in sorted(origin.parent.rglob("*")):
            inner = path.relative_to(origin.parent)
            if path.is_file() and not _SKIPPED.intersection(inner.parts):
                yield path, str(package / inner)
