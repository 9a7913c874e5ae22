"""The positions file: what a restart need not read back from the stream. Never the truth, so never a reason to stop.

After a crash it is the old one or the new one, whole.
"""

import errno
import logging
import threading
from pathlib import Path

from broker.exits import ConfigurationError, OperatorError
from broker.faults import fault
from broker.folder import make_folder, open_folder
from broker.whole import half_made, replacing
from shipper.positions import Positions, PositionsUnreadable

__all__ = ["FILE_NAME", "Cache"]

FILE_NAME = "positions.json"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_BROKEN = {errno.EIO, errno.EROFS}
"""What a disk says that somebody has to repair, after which all is well without another start by hand."""
logger = logging.getLogger(__name__)


class Cache:
    """One host's positions file, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Remember the folder; nothing is touched before `load`."""
        self._folder = folder
        self._path = folder / FILE_NAME
        self._saved: Positions | None = None
        self._writing = threading.Lock()

    def load(self) -> Positions:
        """Return the saved positions, none where there are none or where they cannot be read; blocks on the disk.

        An unreadable file is set aside as `positions.json.damaged` and said. Raises `ConfigurationError` when the
        folder cannot be used, `OperatorError` when its disk is broken or read-only; a disk that is full will have room again.
        """
        try:
            self._make_ready()
            with open_folder(self._folder) as folder:
                data = folder.read(FILE_NAME)
        except FileNotFoundError:
            return Positions()
        except OSError as error:
            kind = OperatorError if error.errno in _BROKEN else ConfigurationError
            raise kind(
                f"cannot use the state folder {self._folder}: {error.strerror}; check --state-dir"
            ) from None
        try:
            return Positions.decode(data)
        except PositionsUnreadable as error:
            self._set_aside(error)
            return Positions()

    def _make_ready(self) -> None:
        try:
            with make_folder(self._folder) as folder, half_made(folder, FILE_NAME):
                pass  # says now, not at the first save, that the folder cannot be written
        except OSError as error:
            if error.errno not in _FULL:
                raise

    def _set_aside(self, error: PositionsUnreadable) -> None:
        damaged = self._path.with_name(f"{FILE_NAME}.damaged")
        try:
            with open_folder(self._folder) as folder:
                folder.rename(FILE_NAME, damaged.name)
        except OSError as failed:
            kept = f"not kept: {failed.strerror}"
        else:
            kept = f"kept as {damaged.name}"
        logger.warning("%s: %s; %s, reading the stream", self._path, error, kept)

    def save(self, positions: Positions) -> None:
        """Write the positions unless they are those last written; blocks on the disk; raises OSError."""
        with self._writing:  # a save that was cancelled may still be at it on its thread
            if positions is not self._saved:
                self._write(positions)

    def _write(self, positions: Positions) -> None:
        with (
            make_folder(self._folder) as folder,  # it may be gone, or was never made
            replacing(folder, FILE_NAME, 0o644) as half,
        ):
            half.file.write(positions.encode())
            half.file.flush()
            fault("positions_written")
        fault("positions_saved")
        self._saved = positions
