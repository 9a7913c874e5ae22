"""Where messages go that cannot be written as lines: set aside whole, a file per batch, and never dropped in silence."""

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from broker.connection import Message
from receiver.reading.delivery import Delivery
from receiver.writing.files import make_folder
from receiver.writing.logbook import sync_folder

__all__ = ["FOLDER", "Quarantine"]

FOLDER = ".quarantine"
_MOST_FILES = 10_000  # of a partition
_MOST_BYTES = 1024 * 1024 * 1024  # of a partition; the default of Logstash's dead letter queue

_OFTEN = (64, 64 * 1024 * 1024)  # files and bytes after which it is looked whether that is too much

logger = logging.getLogger(__name__)

_unseen: dict[tuple[Path, int], tuple[int, int]] = {}
"""By folder and partition: files and bytes that this worker has written since it last looked."""


class Quarantine:
    """What one batch of a partition sets aside, in one file under `<output>/.quarantine`.

    The file is called after the batch's first bad message, so that a batch that is written again makes the same file and
    not a second one. Of each message it holds a line of JSON (subject, sequence, reason, headers, bytes) and the payload
    as it came; a newline stands between messages.
    """

    def __init__(self, output: Path, partition: int) -> None:
        """Touch nothing yet."""
        self._folder = output / FOLDER
        self._partition = partition
        self._file: IO[bytes] | None = None
        self._path: Path | None = None

    def set_aside(self, delivery: Delivery, message: Message, reason: str) -> None:
        """Keep a message; on disk with `sync`. Raises OSError."""
        about = {
            "subject": message.subject,
            "sequence": delivery.sequence,
            "stored_at": delivery.stored_at,
            "reason": reason,
            "headers": message.headers or {},
            "bytes": len(message.data),
        }
        opened = self._file is None
        file = self._open(delivery.sequence) if self._file is None else self._file
        file.write((b"" if opened else b"\n") + json.dumps(about).encode() + b"\n")
        file.write(message.data)

    def sync(self) -> None:
        """Bring everything to disk, and make room for more; raises OSError."""
        if self._file is None:
            return
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self._file = None
        sync_folder(self._folder)
        files, total = _unseen.get((self._folder, self._partition), _OFTEN)
        _unseen[self._folder, self._partition] = (files + 1, total + size)
        if files >= _OFTEN[0] or total >= _OFTEN[1]:
            self._prune()
            _unseen[self._folder, self._partition] = (0, 0)

    def drop(self) -> None:
        """Leave nothing half written in sight, as far as the disk allows: the batch will be written again."""
        with suppress(OSError):  # that's fine: it is written anew under the same name
            if self._file is not None:
                self._file.close()
        with suppress(OSError):
            if self._path is not None:
                self._path.unlink(missing_ok=True)
        self._file = None

    def _open(self, sequence: int) -> IO[bytes]:
        make_folder(self._folder)
        self._path = self._folder / f"p{self._partition}-{sequence:012d}.msg"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.fdopen(os.open(self._path, flags, 0o640), "wb")
        return self._file

    def _prune(self) -> None:
        paths = sorted(self._folder.glob(f"p{self._partition}-*.msg"))
        sizes = [path.stat().st_size for path in paths]
        total, gone = sum(sizes), 0
        while len(paths) - gone > _MOST_FILES or (total > _MOST_BYTES and gone < len(paths) - 1):
            paths[gone].unlink(missing_ok=True)
            total -= sizes[gone]
            gone += 1
        if gone:
            logger.warning(
                "partition %d: the oldest %d files of what was set aside were removed from %s",
                self._partition,
                gone,
                self._folder,
            )
