"""Where messages go that cannot be written as lines: set aside whole, and never dropped in silence or overwritten."""

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from broker.client.connection import Arrived
from broker.wire.delivery import Delivery
from receiver.storage.folders import Folders, make_folder

__all__ = ["FOLDER", "Quarantine"]

FOLDER = ".quarantine"
_MOST_FILES = 10_000  # of a partition
_MOST_BYTES = 1024 * 1024 * 1024  # of a partition; the default of Logstash's dead letter queue

_MOST_HELD = 4 * 1024 * 1024  # bytes
_OFTEN = (64, 64 * 1024 * 1024)  # files and bytes after which it is looked whether that is too much

logger = logging.getLogger(__name__)

_unseen: dict[tuple[Path, int], tuple[int, int]] = {}
"""By output folder and partition: files and bytes that this worker has written since it last looked."""


class Quarantine:
    """What one batch of a partition sets aside, in files under `<output>/.quarantine`: one, or more where it is much.

    A file is called after its first message: its sequence, and when the stream was made, since the sequences of a stream
    that was made anew begin again. So a batch that is written again makes the same file and not a second one; a file that is
    there and holds something else is left as it is. Of each message there is a line of JSON (subject, sequence, reason,
    headers, bytes) and the payload as it came; a newline stands between messages.
    """

    def __init__(self, output: Path, partition: int, created: str = "") -> None:
        """Touch nothing yet; `created` is when the stream was made (RFC 3339), empty where that is not known."""
        self._created = re.sub(r"[^0-9T.Z]", "", created)
        self._output = output
        self._partition = partition
        self._held: list[bytes] = []
        self._size = 0
        self._name = ""
        self._half_written = ""

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
        if self._held:
            self._held.append(b"\n")
        else:
            self._name = f"p{self._partition}-{self._created}-{delivery.sequence:012d}"
        told = json.dumps(about).encode()
        self._held += (told, b"\n", message.data)
        self._size += len(told) + len(message.data)
        if self._size > _MOST_HELD:
            self.sync()

    def sync(self) -> None:
        """Bring everything to disk, and make room for more; raises OSError."""
        if not self._held:
            return
        data = b"".join(self._held)
        with self._folder() as folder:
            self._write(folder, data)
            os.fsync(folder)
            key = (self._output, self._partition)
            files, size = _unseen.get(key, _OFTEN)
            if files >= _OFTEN[0] or size >= _OFTEN[1]:
                self._prune(folder)
                files, size = 0, 0
        _unseen[key] = (files + 1, size + len(data))
        self._held, self._size = [], 0

    def drop(self) -> None:
        """Leave nothing half written in sight, as far as the disk allows: the batch will be written again."""
        if self._half_written:
            with suppress(OSError), self._folder() as folder:
                os.unlink(self._half_written, dir_fd=folder)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        """Open the folder, which is made where it is missing and never reached through a link."""
        make_folder(self._output)
        folders = Folders(self._output)
        try:
            yield folders.make(FOLDER)
        except OSError as error:
            if not str(error.filename).startswith("/"):
                error.filename = str(self._output / FOLDER / (error.filename or self._name))
            raise
        finally:
            folders.close()

    def _write(self, folder: int, data: bytes) -> None:
        """Write a file that was not there; one that a writer who died has left is written to its end."""
        for number in count(1):
            name = f"{self._name}.msg" if number == 1 else f"{self._name}-{number}.msg"
            if (fresh := _make(folder, name)) is not None:
                self._half_written = name
                with fresh:
                    _finish(fresh, data)
                self._half_written = ""
                return
            if (found := _open(folder, name)) is not None:
                with found:
                    there = found.read(len(data))
                    if data.startswith(there):
                        _finish(found, data[len(there) :])
                        return

    def _prune(self, folder: int) -> None:
        # by time: the sequences of a stream that was made anew begin again
        found = sorted(_files(folder, f"p{self._partition}-"))
        total, gone = sum(size for _, size, _ in found), 0
        while len(found) - gone > 1 and (len(found) - gone > _MOST_FILES or total > _MOST_BYTES):
            _, size, name = found[gone]
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            total -= size
            gone += 1
        if gone:
            logger.warning(
                "partition %d: the oldest %d files of what was set aside were removed from %s",
                self._partition,
                gone,
                self._output / FOLDER,
            )


def _make(folder: int, name: str) -> BinaryIO | None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(name, flags, 0o640, dir_fd=folder), "wb")
    except FileExistsError:
        return None


def _open(folder: int, name: str) -> BinaryIO | None:
    """Open what is there to read and write; None for a link, a file of several names and what is no regular one."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None  # that's fine: another name is made, which says what is wrong with the folder, should that be it
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return os.fdopen(descriptor, "r+b")
    os.close(descriptor)
    return None


def _finish(file: BinaryIO, rest: bytes) -> None:
    file.write(rest)
    file.flush()
    os.fsync(file.fileno())


def _files(folder: int, beginning: str) -> Iterator[tuple[int, int, str]]:
    """Yield when each file was last written, its size and its name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            is_one = entry.name.startswith(beginning) and entry.name.endswith(".msg")
            with suppress(FileNotFoundError):
                if is_one and not entry.is_dir(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    yield about.st_mtime_ns, about.st_size, entry.name
