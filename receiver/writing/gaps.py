"""What never came, by name: kept with the batch that showed it, told in `<output>/.gaps.jsonl` once that is committed.

A partition's own file holds the gaps that are still to be told and the sums of those that were; the journal can undo it
like any other. The file in the output folder is everybody's, and a person's to read, rotate or empty at any time.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

from broker.app.faults import fault
from broker.app.folder import open_folder
from broker.app.whole import replacing
from receiver.writing.journal import PreImage
from receiver.writing.logbook import append, cut_back, named, sync_folder
from receiver.writing.opening import descriptor_of, read
from receiver.writing.spans import Finding, Kind

__all__ = ["GAPS", "DamagedGaps", "GapBook", "Missing", "cut", "missing"]

GAPS = ".gaps.jsonl"
"""The name of the file in the output folder."""

_TRIES, _BETWEEN = 100, 0.01  # a second in all
_LOOK_BACK = 16 * 1024 * 1024  # bytes of it in which a gap is looked for that may have been told
_WAY_OUT = "bring it back, or remove it and the counts in it"
_SUMS, _GAP = b'{"sums":', b'{"kind":'


class DamagedGaps(ValueError):
    """A partition's file of gaps that cannot be read."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What never came of a host's files: how many gaps, and of how many bytes in all."""

    gaps: int = 0
    size: int = 0


class GapBook:
    """The gaps of one partition; whoever holds the partition's lock may have one."""

    def __init__(self, path: Path, partition: int) -> None:
        """Touch nothing yet."""
        self._path = path
        self._partition = partition

    def image(self) -> PreImage:
        """Return what the file is now, for the journal; raises OSError."""
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return PreImage(self._path.name, 0, 0)
        return PreImage(self._path.name, found.st_size, 0, inode=found.st_ino)

    def save(self, gaps: Iterable[Finding]) -> None:
        """Keep what a batch has shown, on disk when this returns; the image must be in the journal. Raises OSError."""
        append(self._path, b"".join(_line(gap, self._partition) for gap in gaps))

    def tell(self, output: Path) -> None:
        """Append what is committed and was not told to the file in the output folder, each gap once.

        Only between batches: what the journal says of the own file is void then. Killed anywhere in here, the next call
        finds what was told already. Raises OSError, `DamagedGaps`.
        """
        if not _size(self._path):
            return
        sums, untold = _read(self._path)
        if untold:
            with named(output / GAPS):
                try:
                    _publish(output / GAPS, untold)
                except TimeoutError:
                    return  # that's fine: they are told after one of the next batches
            fault("gaps_told")
            with named(self._path):
                self._renew(_summed(sums, untold))

    def _renew(self, sums: dict[str, Missing]) -> None:
        counts = {host: [one.gaps, one.size] for host, one in sorted(sums.items())}
        with (
            open_folder(self._path.parent) as folder,
            replacing(folder, self._path.name, 0o644) as half,
        ):
            half.file.write(_sealed(_encode({"sums": counts})))
            half.file.flush()
            fault("gaps_summed")


def missing(path: Path) -> dict[str, Missing]:
    """Return by host what never came, as a partition's file (`<state>/p<N>.gaps`) has it.

    Those of a batch that is being written count already. Raises OSError, `DamagedGaps`.
    """
    return _summed(*_read(path)) if _size(path) else {}


def cut(path: Path, image: PreImage) -> None:
    """Cut a partition's file back to its image; raises OSError, `DamagedGaps`."""
    try:
        cut_back(path, image)
    except EOFError as error:
        raise DamagedGaps(f"{error}; {_WAY_OUT}") from None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _line(gap: Finding, partition: int) -> bytes:
    about = asdict(gap) | {"kind": gap.kind.value, "partition": partition}
    about |= {"bytes": gap.end - gap.start, "since": _iso(gap.since), "until": _iso(gap.read_at)}
    if gap.is_sum:
        about["gaps"] = gap.blocks
    for field in ("read_at", "blocks", *(() if gap.kind is Kind.LOSS else ("after",))):
        del about[field]
    return _sealed(_encode(about))


def _sealed(line: bytes) -> bytes:
    """Return a line as the partition's own file has it: with a checksum before it."""
    return b"%08x %b" % (crc32(line), line)


def _encode(entry: dict[str, object]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _iso(moment: int) -> str | None:
    if not 0 < moment < 2**62:
        return None
    return datetime.fromtimestamp(moment / 1e9, UTC).isoformat(timespec="milliseconds")


def _read(path: Path) -> tuple[dict[str, Missing], list[bytes]]:
    sums: dict[str, Missing] = {}
    untold: list[bytes] = []
    data = read(path)
    for written in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        seal, _, line = written.partition(b" ")
        if seal != b"%08x" % crc32(line):
            raise DamagedGaps(f"{path} is damaged: it holds {written[:40]!r}; {_WAY_OUT}")
        if line.startswith(_GAP):
            untold.append(line)
        elif line.startswith(_SUMS):
            sums = {host: Missing(*counts) for host, counts in json.loads(line)["sums"].items()}
        else:
            raise DamagedGaps(f"{path} is damaged: it holds {line[:40]!r}; {_WAY_OUT}")
    return sums, untold


def _summed(sums: dict[str, Missing], untold: Sequence[bytes]) -> dict[str, Missing]:
    total = dict(sums)
    for gap in map(json.loads, untold):
        before = total.get(gap["host"], Missing())
        total[gap["host"]] = Missing(before.gaps + gap.get("gaps", 1), before.size + gap["bytes"])
    return total


def _publish(path: Path, untold: Sequence[bytes]) -> None:
    with _held(path) as descriptor:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _LOOK_BACK, max(size - _LOOK_BACK, 0))
        whole = tail.rfind(b"\n") + 1
        if whole != len(tail):  # written by a hand, or by one of us that died or had no room
            size -= len(tail) - whole
            os.ftruncate(descriptor, size)
        told = set(tail.splitlines(keepends=True))
        _append(descriptor, b"".join(line for line in untold if line not in told), size)
    sync_folder(path.parent)


@contextmanager
def _held(path: Path) -> Iterator[int]:
    descriptor = descriptor_of(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock the file, which partitions share for milliseconds; raises TimeoutError where a reader holds it for longer."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_BETWEEN)
    raise TimeoutError(f"{GAPS} is locked by somebody else")


def _append(descriptor: int, data: bytes, size: int) -> None:
    try:
        if data:
            _write_whole(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # what may never have reached the disk is not to be found told
            os.ftruncate(descriptor, size)
        raise


def _write_whole(descriptor: int, data: bytes) -> None:
    if os.write(descriptor, data) != len(data):
        raise OSError(28, "No space left on device")
