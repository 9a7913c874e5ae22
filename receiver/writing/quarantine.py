"""Where messages go that cannot be written as lines: set aside whole, a file per batch, and never dropped in silence."""

import json
import logging
import os
from contextlib import suppress
from pathlib import Path

from broker.connecting.connection import Arrived
from broker.delivery import Delivery
from receiver.writing.folders import make_folder
from receiver.writing.logbook import named, sync_folder

__all__ = ["FOLDER", "Quarantine"]

FOLDER = ".quarantine"
_MOST_FILES = 10_000  # of a partition
_MOST_BYTES = 1024 * 1024 * 1024  # of a partition; the default of Logstash's dead letter queue

_MOST_HELD = 4 * 1024 * 1024  # bytes
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
        self._held: list[bytes] = []
        self._size = 0
        self._path: Path | None = None
        self._how = os.O_TRUNC

    def set_aside(self, delivery: Delivery, message: Arrived, reason: str) -> None:
        """Keep a message; on disk with `sync`. Raises OSError."""
        about = {
            "subject": message.subject,
            "sequence": delivery.sequence,
            "stored_at": delivery.stored_at,
            "reason": reason,
            "headers": message.headers or {},
            "bytes": len(message.data),
        }
        if self._path is None:
            self._path = self._folder / f"p{self._partition}-{delivery.sequence:012d}.msg"
        else:
            self._held.append(b"\n")
        self._held += (json.dumps(about).encode(), b"\n", message.data)
        self._size += len(message.data)
        if self._size > _MOST_HELD:
            self._write(self._path)

    def sync(self) -> None:
        """Bring everything to disk, and make room for more; raises OSError."""
        if self._path is None:
            return
        self._write(self._path)
        sync_folder(self._folder)
        key = (self._folder, self._partition)
        files, size = _unseen.get(key, _OFTEN)
        if files >= _OFTEN[0] or size >= _OFTEN[1]:
            self._prune()
            files, size = 0, 0
        _unseen[key] = (files + 1, size + self._path.stat().st_size)
        self._path = None

    def drop(self) -> None:
        """Leave nothing half written in sight, as far as the disk allows: the batch will be written again."""
        if self._path is not None:
            with suppress(OSError):  # that's fine: it is written anew under the same name
                self._path.unlink(missing_ok=True)

    def _write(self, path: Path) -> None:
        make_folder(self._folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags | self._how, 0o640)
        with named(path), os.fdopen(descriptor, "wb") as file:
            file.write(b"".join(self._held))
            file.flush()
            os.fsync(file.fileno())
        self._held, self._size, self._how = [], 0, os.O_APPEND

    def _prune(self) -> None:
        # by time: the sequences of a stream that was made anew begin again
        found = [(path.stat(), path) for path in self._folder.glob(f"p{self._partition}-*.msg")]
        found.sort(key=lambda entry: entry[0].st_mtime_ns)
        total, gone = sum(about.st_size for about, _ in found), 0
        while len(found) - gone > 1 and (len(found) - gone > _MOST_FILES or total > _MOST_BYTES):
            about, path = found[gone]
            path.unlink(missing_ok=True)
            total -= about.st_size
            gone += 1
        if gone:
            logger.warning(
                "partition %d: the oldest %d files of what was set aside were removed from %s",
                self._partition,
                gone,
                self._folder,
            )
