"""How far each source file has been received, on disk: a file that only grows, so that the journal can undo it too.

One line per file and batch: host, file id, end of its last span. The newest line of a file counts.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from receiver.journal import PreImage
from receiver.logbook import sync_folder

__all__ = ["SpanBook"]

_GROWN = 1024 * 1024  # bytes more than its newest lines take, after which the file is written anew
_PROOF = 64  # bytes before the end of what is remembered; they tell whether the file is still what was read

Reached = dict[tuple[str, str], int]


@dataclass(slots=True)
class _Memory:
    """What a reused worker remembers of a file: its content up to `size`, which `proof` recognises."""

    inode: int
    size: int
    proof: bytes
    reached: Reached


_memories: dict[Path, _Memory] = {}


class SpanBook:
    """The spans of one partition; whoever holds the partition's lock may have one."""

    def __init__(self, path: Path) -> None:
        """Read what is new since this worker last looked; raises OSError."""
        self._path = path
        self._news: Reached = {}
        self._memory = self._remember()

    def reached(self, host: str, file: str) -> int | None:
        """Return the end of the last span of a source file, None when no block of it has come yet."""
        key = (host, file)
        known = self._news.get(key)
        return known if known is not None else self._memory.reached.get(key)

    def note(self, host: str, file: str, end: int) -> None:
        """Remember that a source file has been received up to `end`; on disk with `save`."""
        self._news[host, file] = end

    def image(self) -> PreImage:
        """Return what the file is now, for the journal."""
        return PreImage(self._path.name, self._memory.size, 0)

    def save(self) -> None:
        """Append what was noted, on disk when this returns; the image must be in the journal by now."""
        lines = _encode(self._news.items())
        if not lines:
            return
        with self._path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fdatasync(file.fileno())
        self._memory.reached.update(self._news)
        self._memory.size += len(lines)
        self._memory.proof = (self._memory.proof + lines)[-_PROOF:]
        self._news = {}

    def undo(self, image: PreImage) -> None:
        """Cut the file back to its image."""
        _memories.pop(self._path, None)
        with self._path.open("ab") as file:
            file.truncate(image.length or 0)
            os.fsync(file.fileno())
        self._news = {}
        self._memory = self._remember()

    def compact(self) -> None:
        """Write the file anew when most of it is history. Only between batches: what the journal says of it is void then."""
        newest = _encode(self._memory.reached.items())
        if self._memory.size < len(newest) + _GROWN:
            return
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(newest)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        sync_folder(self._path.parent)
        self._memory = self._remember()

    def _remember(self) -> _Memory:
        with self._path.open("a+b") as file:
            found = os.fstat(file.fileno())
            memory = _memories.get(self._path)
            if memory is None or not _is_same(memory, found, file.fileno()):
                memory = _Memory(found.st_ino, 0, b"", {})
            file.seek(memory.size)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            host, name, end = json.loads(line)
            memory.reached[host, name] = end
        memory.size += len(data)
        memory.proof = (memory.proof + data)[-_PROOF:]
        _memories[self._path] = memory
        return memory


def _is_same(memory: _Memory, found: os.stat_result, descriptor: int) -> bool:
    start = memory.size - len(memory.proof)
    return (
        found.st_ino == memory.inode
        and found.st_size >= memory.size
        and os.pread(descriptor, len(memory.proof), start) == memory.proof
    )


def _encode(entries: Iterable[tuple[tuple[str, str], int]]) -> bytes:
    return b"".join(
        json.dumps([host, file, end], separators=(",", ":")).encode() + b"\n"
        for (host, file), end in entries
    )
