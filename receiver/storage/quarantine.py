"""Where messages go that cannot be written as lines: set aside whole, and never dropped in silence or overwritten."""

import json
import logging
import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from stat import S_ISREG

from broker.wire.delivery import Delivery, RawMessage
from receiver.storage.folders import Folders, make_folder

FOLDER = ".quarantine"
_MOST_HELD = 4 * 1024 * 1024  # bytes
_MOST_KEPT = 1024 * 1024 * 1024  # bytes of a partition: a bad client must not fill the disk
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Quarantine:
    """What one batch of a partition sets aside, in files under `<output>/.quarantine`: one, or more where it is much.

    A file is called after its first message: its sequence, and when the stream was made, since the sequences of a stream
    that was made anew begin again. So a batch that is written again makes the same file and not a second one; a file that is
    there and holds something else is left as it is. Of each message there is a line of JSON (subject, sequence, reason,
    headers, bytes) and the payload as it came; a newline stands between messages. `created` is when the stream was made
    (RFC 3339), empty where that is not known.
    """

    output: Path
    partition: int
    created: str = ""
    _held: list[bytes] = field(default_factory=list)
    _size: int = 0
    _name: str = ""

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
        if not self._held:
            created = re.sub(r"[^0-9T.Z]", "", self.created)
            self._name = f"p{self.partition}-{created}-{delivery.sequence:012d}"
        told = json.dumps(about).encode()
        self._held.append(told + b"\n" + message.data)
        self._size += len(told) + len(message.data)
        if self._size > _MOST_HELD:
            self.sync()

    def sync(self) -> None:
        """Bring everything to disk, and make room for more; raises OSError."""
        if not self._held:
            return
        make_folder(self.output)
        with (
            closing(Folders(self.output)) as folders,
            folders.at(f"{FOLDER}/{self._name}", make=True) as (_, folder),
        ):
            for number in count(1):
                name = f"{self._name}.msg" if number == 1 else f"{self._name}-{number}.msg"
                if _write(folder, name, b"\n".join(self._held)):
                    break
            os.fsync(folder)
            self._prune(folder)
        self._held, self._size = [], 0

    def _prune(self, folder: int) -> None:
        """Remove what was set aside first, where it is more than 1 GiB; never the last file."""
        found = []
        for name in (name for name in os.listdir(folder) if name.startswith(f"p{self.partition}-")):
            with suppress(FileNotFoundError):  # somebody else removes it
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if S_ISREG(about.st_mode):
                    found.append((about.st_mtime_ns, about.st_size, name))
        left = sum(size for _, size, _ in found)
        for _, size, name in sorted(found)[:-1]:
            if left <= _MOST_KEPT:
                break
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            left -= size
            logger.warning("too much is in quarantine: %s was removed", self.output / FOLDER / name)


def _write(folder: int, name: str, data: bytes) -> bool:
    """Write a file, or what a writer who died has left of it, to its end and to disk; False where something else is there.

    One that may not be there is removed, as the batch will be written again. Raises OSError.
    """
    with suppress(FileNotFoundError):
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not S_ISREG(about.st_mode) or about.st_nlink != 1:
            return False
    with os.fdopen(os.open(name, _FLAGS, 0o640, dir_fd=folder), "r+b") as file:
        there = file.read(len(data))
        if not data.startswith(there):
            return False
        try:
            file.write(data[len(there) :])
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
    return True
