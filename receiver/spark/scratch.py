"""Spark's scratch folder: one for each JVM, in TMPDIR, removed at the end.

Each folder is locked while its process runs; folders without a lock are removed by the next start.
Process ids would not do: containers may share TMPDIR.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nats_logship.app.exits import OperatorError
from nats_logship.app.locks import Locked, lock

_PREFIX = "logreceiver-"
_LONGEST = 40  # bytes of TMPDIR: the path of a Unix socket in it has at most 107


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in TMPDIR, or in /tmp if that path is too long; raises `OperatorError`."""
    parent = Path(tempfile.gettempdir()).absolute()
    if len(os.fsencode(parent)) > _LONGEST:
        parent = Path("/tmp")
    try:
        for left in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError, Locked), _locked(left):  # another user's, or in use
                shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        (new / "space").write_bytes(bytes(4096))  # on a full disk the JVM would never answer
    except OSError as error:
        raise OperatorError(
            f"cannot make Spark's scratch folder in {parent}: {error.strerror}; set TMPDIR to a "
            "folder with space"
        ) from None
    with _locked(new):
        folder = new.rename(new.with_name(new.name[1:]))  # visible to others once it is locked
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
