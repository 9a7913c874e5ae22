"""Where messages go that cannot be written as lines: set aside whole, and never dropped in silence or overwritten."""

import errno
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

from broker.client.connection import RawMessage
from broker.wire.delivery import Delivery
from receiver.storage.folders import Folders, make_folder

__all__ = ["FOLDER", "Quarantine"]

FOLDER = ".quarantine"
_MOST_BYTES = 1024 * 1024 * 1024  # of a partition; the default of Logstash's dead letter queue

_MOST_HELD = 4 * 1024 * 1024  # bytes

logger = logging.getLogger(__name__)


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

    def set_aside(self, delivery: Delivery, message: RawMessage, reason: str) -> None:
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
            self._prune(folder)
        self._held, self._size = [], 0

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
            if (opened := _open(folder, name)) is None:
                continue
            with opened as file:
                there = file.read(len(data))
                if data.startswith(there):
                    self._finish(file, data[len(there) :], folder, name)
                    return

    def _finish(self, file: BinaryIO, rest: bytes, folder: int, name: str) -> None:
        """Bring a file to disk; one that may not be there is removed, as the batch will be written again."""
        try:
            file.write(rest)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise

    def _prune(self, folder: int) -> None:
        # by time: the sequences of a stream that was made anew begin again
        found = sorted(_files(folder, f"p{self._partition}-"))
        total = sum(size for _, size, _ in found)
        for _, size, name in found[:-1]:
            if total <= _MOST_BYTES:
                break
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            total -= size
            logger.warning(
                "partition %d: there is too much in quarantine, %s was removed",
                self._partition,
                self._output / FOLDER / name,
            )


def _open(folder: int, name: str) -> BinaryIO | None:
    """Open a file to read and write, made where it is missing; None for what is no regular file, or has several names."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, 0o640, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            return None
        raise
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return os.fdopen(descriptor, "r+b")
    os.close(descriptor)
    return None


def _files(folder: int, beginning: str) -> Iterator[tuple[int, int, str]]:
    """Yield when each file was last written, its size and its name."""
    with os.scandir(folder) as entries:
        for entry in entries:
            is_one = entry.name.startswith(beginning) and entry.name.endswith(".msg")
            with suppress(FileNotFoundError):
                if is_one and not entry.is_dir(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    yield about.st_mtime_ns, about.st_size, entry.name
