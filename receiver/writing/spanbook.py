"""How far each source file has been received, on disk: a file that only grows, so that the journal can undo it too.

One line per file and batch: host, file id, end of its last span, when that was read. The newest line of a file counts.
One per live file that ends within a line: its name, host and file id, or null once the line is finished.
Every write ends in a line of its own random seal and a checksum of its lines: where a seal still stands, everything before it is
what was read or written with it. The journal knows the last seal: a file that was cut, or is an older one, ends in another.
Files of which nothing came for a month are forgotten, and the oldest of a host that has too many, which is told: their next
block is taken like the first of a new file.
"""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from broker.app.faults import fault
from broker.app.folder import open_folder
from broker.app.whole import replacing
from receiver.writing.endings import Endings, Source
from receiver.writing.journal import PreImage
from receiver.writing.logbook import append, cut_back
from receiver.writing.opening import opened
from receiver.writing.received import MOST_OF_HOST, End, Received

__all__ = ["DamagedSpans", "SpanBook", "cut"]

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: it costs more than its use

_GROWN = 1024 * 1024  # bytes below which a file is never written anew
_FORGOTTEN = 30 * 24 * 3600 * 1_000_000_000  # nanoseconds behind the file that was read last
_CHECKSUM = len("01234567")
_SEAL = len(b'["0123456789abcdef","01234567"]\n')

_Ends = dict[Source, End]


class DamagedSpans(ValueError):
    """A file of spans that cannot be read."""


@dataclass(slots=True)
class _Memory:
    """What a reused worker remembers of a file: its content up to `size`, which ends in `seal`, by name `last`.

    `checksum` is that of the lines behind the last seal: a program that died may have left some.
    `compact_at` is the size from which it is worth a look whether most of the file is history.
    """

    inode: int
    size: int
    seal: bytes
    reached: Received
    torn: dict[str, Source]
    compact_at: int = _GROWN
    last: str = ""
    checksum: int = 0


_WAY_OUT = "bring it back, or remove it and lose what it knows of gaps"

_memories: dict[Path, _Memory] = {}
"""Of the partitions served last, the latest at the end: a reused worker comes to all of them."""
_MOST_MEMORIES = 2
_BEGIN = ("", "")


class SpanBook:
    """The spans of one partition; whoever holds the partition's lock may have one.

    `forgotten` is how many files were forgotten for others to be remembered by `save`; `notices` tell of it, once for each host.
    """

    def __init__(self, path: Path) -> None:
        """Read what is new since this worker last looked; raises OSError, `DamagedSpans`."""
        self._path = path
        self._news: _Ends = {}
        self.forgotten = 0
        self.notices: list[str] = []
        self._memory = self._remember()
        self.endings = Endings(self._memory.torn)

    @property
    def seal(self) -> str:
        """The name of the last seal, empty where there is none."""
        return self._memory.last

    def loss(self, expected: str) -> str | None:
        """Return what somebody else took from the file since it ended in the seal that the journal knows; None for nothing.

        Raises `DamagedSpans` for a file that was cut, or is an older one.
        """
        if not expected or self.seal == expected:
            return None
        if not self._memory.size:
            return f"{self._path} is gone: gaps and repeats against what was received before are not seen"
        raise DamagedSpans(
            f"{self._path} is damaged: it does not end as it was written, but was cut or is an older one; {_WAY_OUT}"
        )

    def reached(self, host: str, file: str) -> int | None:
        """Return the end of the last span of a source file, None when no block of it has come yet."""
        known = self._known(host, file)
        return known[0] if known else None

    def read_at(self, host: str, file: str) -> int:
        """Return when the last block of a source file was read, in nanoseconds since the epoch; 0 when unknown."""
        known = self._known(host, file)
        return known[1] if known else 0

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever noted."""
        return not (any(self._memory.reached.items()) or self._news)

    def begin(self, sequence: int) -> None:
        """Remember the sequence up to which somebody else may have received messages, of a book that is new."""
        self._news["", ""] = (sequence, 0)

    def _known(self, host: str, file: str) -> tuple[int, int] | None:
        key = (host, file)
        return self._news.get(key) or self._memory.reached.get(*key)

    def note(self, host: str, file: str, end: int, read_at: int) -> None:
        """Remember that a source file has been received up to `end`; on disk with `save`."""
        self._news[host, file] = (end, read_at)

    def image(self) -> PreImage:
        """Return what the file is now, for the journal."""
        return PreImage(self._path.name, self._memory.size, 0, inode=self._memory.inode)

    def save(self) -> None:
        """Append what was noted, on disk when this returns; the image must be in the journal by now."""
        torn, before = self.endings.torn, self._memory.torn
        lives = [live for live in {**before, **torn} if before.get(live) != torn.get(live)]
        fresh = {live: torn.get(live) for live in lives}
        if not (self._news or fresh):
            return
        last = secrets.token_hex(8)
        lines = _sealed(self._news, fresh, last, self._memory.checksum)
        append(self._path, lines)
        self._remember_news()
        self._memory.torn = dict(torn)
        self._memory.size += len(lines)
        self._memory.seal, self._memory.last = lines[-_SEAL:], last
        self._memory.checksum = 0
        self._news = {}

    def _remember_news(self) -> None:
        reached = self._memory.reached
        for (host, file), end in self._news.items():
            reached.put(host, file, end)
        self.forgotten += reached.forgotten
        self.notices += map(_overflow, reached.losers)
        reached.settle()

    def compact(self, now: int) -> None:
        """Write the file anew when most of it is history. Only between batches: what the journal says of it is void then.

        `now` is in nanoseconds since the epoch. Files are forgotten by it or by the file that was read last, whichever is
        earlier: one message of a day when the broker's clock was ahead makes nothing old, nor does a clock here that is.
        """
        if self._memory.size < self._memory.compact_at:
            return
        lately = _lately(self._memory.reached, now)
        torn = {live: source for live, source in self._memory.torn.items() if source in lately}
        newest = _sealed(lately, torn, self._memory.last)
        if self._memory.size < 2 * len(newest):
            self._memory.compact_at = 2 * self._memory.size
            return
        with (
            open_folder(self._path.parent) as folder,
            replacing(folder, self._path.name, 0o644) as half,
        ):
            half.file.write(newest)
            half.file.flush()
            fault("spans_renewed")
        self._memory = self._remember()

    def _remember(self) -> _Memory:
        with opened(self._path, "a+b") as file:
            found = os.fstat(file.fileno())
            memory = _memories.get(self._path)
            is_fresh = memory is None or not _is_same(memory, found, file.fileno())
            if memory is None or is_fresh:
                memory = _Memory(found.st_ino, 0, b"", Received(), {})
            file.seek(memory.size)
            data = file.read()
        try:
            _read(data, memory)
        except (ValueError, TypeError) as error:
            _memories.pop(self._path, None)
            raise DamagedSpans(f"{self._path} is damaged: {error}; {_WAY_OUT}") from None
        if is_fresh:
            memory.reached.settle_all()
        else:
            memory.reached.settle()
        memory.size += len(data)
        memory.seal = (memory.seal + data)[-_SEAL:]
        _keep(self._path, memory)
        return memory


def cut(path: Path, image: PreImage, seal: str = "") -> None:
    """Cut a file of spans back to its image, before anybody reads it: what stands behind may be torn.

    A copy that somebody has brought back is another file, and the right one where the image ended in this `seal`.
    """
    _memories.pop(path, None)
    try:
        cut_back(path, replace(image, inode=0) if _is_sealed(path, image, seal) else image)
    except EOFError as error:
        raise DamagedSpans(f"{error}; {_WAY_OUT}") from None


def _keep(path: Path, memory: _Memory) -> None:
    _memories.pop(path, None)
    _memories[path] = memory
    while len(_memories) > _MOST_MEMORIES:
        del _memories[next(iter(_memories))]


def _is_sealed(path: Path, image: PreImage, seal: str) -> bool:
    if not seal or not os.path.lexists(path):
        return False
    with opened(path, "rb") as file:
        file.seek(max((image.length or 0) - _SEAL, 0))
        return file.read(_SEAL).startswith(f'["{seal}",'.encode())


def _read(data: bytes, memory: _Memory) -> None:
    checksum = memory.checksum
    for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        match json.loads(line):
            case [str(seal), str(written)] if len(written) == _CHECKSUM:
                if written != f"{checksum:08x}":
                    raise ValueError("a checksum in it is another")
                memory.last, checksum = seal, 0
            case entry:
                _take(entry, memory)
                checksum = crc32(line, checksum)
    memory.checksum = checksum


def _take(entry: object, memory: _Memory) -> None:
    match entry:
        case [str(host), str(file), int(end), int(read_at)]:
            memory.reached.put(host, file, (end, read_at))
        case [str(live), [str(host), str(file)]]:
            memory.torn[live] = (host, file)
        case [str(live), None]:
            memory.torn.pop(live, None)
        case entry:
            raise ValueError(f"unexpected entry {entry!r}")


def _lately(reached: Received, now: int) -> _Ends:
    newest = max((read_at for _, _, (_, read_at) in reached.items()), default=0)
    last = min(now, newest)
    left = {
        (host, file): (end, read_at or newest)
        for host, file, (end, read_at) in reached.items()
        if not read_at or last - read_at < _FORGOTTEN
    }
    # messages of a host that is forgotten were received: what it is not known by any more must show no loss
    known = [
        end for host, file, (end, _) in reached.items() if not file and (host, file) not in left
    ]
    begin, _ = reached.get(*_BEGIN) or (0, 0)
    return {**left, _BEGIN: (max(begin, *known, 0), 0)}


def _overflow(host: str) -> str:
    return (
        f"host {host} has sent lines of too many files, and the oldest are forgotten (a host has at most "
        f"{MOST_OF_HOST:,} that are remembered): gaps and repeats in these are not seen; find out what makes "
        "so many files there"
    )


def _is_same(memory: _Memory, found: os.stat_result, descriptor: int) -> bool:
    start = memory.size - len(memory.seal)
    return (
        found.st_ino == memory.inode
        and found.st_size >= memory.size
        and os.pread(descriptor, len(memory.seal), start) == memory.seal
    )


def _sealed(
    entries: _Ends, torn: Mapping[str, Source | None], last: str, checksum: int = 0
) -> bytes:
    known = ([host, file, *reached] for (host, file), reached in entries.items())
    lines = b"".join(_encode(line).encode() + b"\n" for line in (*known, *torn.items()))
    return lines + _encode([last, f"{crc32(lines, checksum):08x}"]).encode() + b"\n"
