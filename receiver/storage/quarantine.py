"""Messages that cannot be written as lines, kept whole in files that are never overwritten."""

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from nats_logship.app.files import Folder, replace_file
from nats_logship.wire.delivery import Delivery, RawMessage
from receiver.storage.folders import make_parent

FOLDER = ".quarantine"
_MOST_BUFFERED = 4 * 1024 * 1024  # bytes in memory
_MOST_KEPT = 1024 * 1024 * 1024  # bytes of a partition: a bad client must not fill the disk
_MOST_FILES = 100_000  # of a partition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Quarantine:
    """The messages that batches of a partition set aside, in files of `<output>/.quarantine`.

    A message is a line of JSON (subject, sequence, reason, headers, bytes) and then its payload; a
    newline separates messages. A file is named by the sequence of its first message and by
    `created`, when the stream was created (RFC 3339; empty if not known): a batch that is written
    again writes the same file. A file with other content is left as it is. When a partition has
    more than 1 GiB or 100,000 files, the oldest are deleted.
    """

    output: Path
    partition: int
    created: str = ""
    _buffered: list[bytes] = field(default_factory=list)
    _size: int = 0  # bytes that are buffered
    _total: int = 0  # bytes of all files
    _name: str = ""
    _kept: dict[str, int] | None = None  # the sizes of all files, the oldest first

    def set_aside(self, delivery: Delivery, message: RawMessage, reason: str) -> None:
        """Keep a message; it is on disk after `sync`. Raises OSError."""
        about = {
            "subject": message.subject,
            "sequence": delivery.sequence,
            "stored_at": delivery.stored_at,
            "reason": reason,
            "headers": message.headers or {},
            "bytes": len(message.data),
        }
        if not self._buffered:
            created = re.sub(r"[^0-9T.Z]", "", self.created)
            self._name = f"p{self.partition}-{created}-{delivery.sequence:012d}"
        head = json.dumps(about).encode()
        self._buffered.append(head + b"\n" + message.data)
        self._size += len(head) + len(message.data)
        if self._size > _MOST_BUFFERED:
            self.sync()

    def sync(self) -> None:
        """Bring all messages to disk, and delete the oldest files beyond the limits.

        Raises OSError.
        """
        if not self._buffered:
            return
        with make_parent(self.output, f"{FOLDER}/{self._name}") as (folder, name):
            for number in count(1):
                file = f"{name}.msg" if number == 1 else f"{name}-{number}.msg"
                if _write(folder, file, b"\n".join(self._buffered)):
                    break
            self._delete_oldest(folder, file)
        self._buffered, self._size = [], 0

    def _delete_oldest(self, folder: Folder, newest: str) -> None:
        """Delete the oldest files while they are over a limit, but never the newest."""
        if self._kept is None:
            self._kept = self._list_sizes(folder)
        kept, found = self._kept, folder.find(newest)
        self._total += (found.st_size if found else 0) - kept.pop(newest, 0)
        kept[newest] = found.st_size if found else 0
        while len(kept) > 1 and (self._total > _MOST_KEPT or len(kept) > _MOST_FILES):
            name = next(iter(kept))
            with suppress(FileNotFoundError):
                folder.remove(name)
            self._total -= kept.pop(name)
            logger.warning("quarantine is full: deleted %s", self.output / FOLDER / name)

    def _list_sizes(self, folder: Folder) -> dict[str, int]:
        """Return the sizes of all files; slow, as each file takes a call of the system."""
        names = (one for one in folder.names() if one.startswith(f"p{self.partition}-"))
        found = ((name, folder.find(name)) for name in names)
        dated = sorted((one.st_mtime_ns, one.st_size, name) for name, one in found if one)
        self._total = sum(size for _, size, _ in dated)
        return {name: size for _, size, name in dated}


def _write(folder: Folder, name: str, data: bytes) -> bool:
    """Write messages to a file, on disk at the end; return False if it has other content.

    A batch that was not committed may have written a beginning of the same data, or more of it.
    Raises OSError.
    """
    found = folder.read(name) if folder.find(name) else b""
    if not found.startswith(data):
        if not data.startswith(found):
            return False
        with replace_file(folder, name, f".{name}.new") as file:
            file.write(data)
    return True
