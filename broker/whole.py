"""Small files that are there whole or as they were before, whatever happens meanwhile."""

import os
from pathlib import Path

from broker.exits import OperatorError

__all__ = ["write_whole"]


def write_whole(path: Path, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file so that it is there whole or as it was before, also after a crash; raises `OperatorError`.

    Text is written as UTF-8. From the first byte on nobody may do more with it than `mode` says.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # of a crash, and perhaps of another mode
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise OperatorError(
            f"cannot write {path}: {error.strerror}; check the disk and the folder's owner"
        ) from None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
