"""Where messages go that cannot be written as lines: set aside whole, and never dropped in silence or overwritten."""

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
_MOST_HELD = 4 * 1024 * 1024  # bytes
_MOST_KEPT = 1024 * 1024 * 1024  # bytes of a partition: a bad client must not fill the disk
_MOST_FILES = 100_000  # of a partition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Quarantine:
    """What batches of a partition set aside, each in a file or more under `<output>/.quarantine`.

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
    _total: int = 0  # bytes of all files
    _name: str = ""
    _kept: dict[str, int] | None = None  # sizes of the files by name, the oldest first

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
        with make_parent(self.output, f"{FOLDER}/{self._name}") as (folder, name):
            for number in count(1):
                file = f"{name}.msg" if number == 1 else f"{name}-{number}.msg"
                if _write(folder, file, b"\n".join(self._held)):
                    break
            self._prune(folder, file)
        self._held, self._size = [], 0

    def _prune(self, folder: Folder, newest: str) -> None:
        """Remove the oldest files where they are too many or too large; never the newest one."""
        if self._kept is None:
            self._kept = self._listed(folder)
        kept, about = self._kept, folder.find(newest)
        self._total += (about.st_size if about else 0) - kept.pop(newest, 0)
        kept[newest] = about.st_size if about else 0
        while len(kept) > 1 and (self._total > _MOST_KEPT or len(kept) > _MOST_FILES):
            name = next(iter(kept))
            with suppress(FileNotFoundError):
                folder.remove(name)
            self._total -= kept.pop(name)
            logger.warning("too much is in quarantine: %s was removed", self.output / FOLDER / name)

    def _listed(self, folder: Folder) -> dict[str, int]:
        """Return what is there, once: to look at each file for each batch would grow with them."""
        names = (one for one in folder.names() if one.startswith(f"p{self.partition}-"))
        looked_at = ((name, folder.find(name)) for name in names)
        found = [(about.st_mtime_ns, about.st_size, name) for name, about in looked_at if about]
        self._total = sum(size for _, size, _ in found)
        return {name: size for _, size, name in sorted(found)}


def _write(folder: Folder, name: str, data: bytes) -> bool:
    """Have a file hold messages, and on disk; False where something else is there. Raises OSError.

    What a batch that was not committed has set aside is the beginning of the same, or more.
    """
    there = folder.read(name) if folder.find(name) else b""
    if not there.startswith(data):
        if not data.startswith(there):
            return False
        with replace_file(folder, name, f".{name}.new") as file:
            file.write(data)
    return True
