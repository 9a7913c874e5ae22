"""Compare what was received of a backlog of some GB while it is read: it exceeds the memory."""

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

from tests.support.oracle import Verdict, judge_host
from tests.support.received import is_packed, read_segment, segments_of

_PART = 4 * 1024 * 1024
_TO_BE_NAMED = 500_000_000  # bytes; each line of more would not fit into memory


def judge_large(source: Path, output: Path, host: str, to_be_named: int = _TO_BE_NAMED) -> Verdict:
    """Judge what a receiver wrote for `host` below `output` against the one source file.

    Where one of more than `to_be_named` bytes differs, it is reported whether that is a matter of
    order (`reordered` is 1), and not what became of each line.
    """
    segments = segments_of(output, host)
    if (lines := _equal_lines(source, segments)) is not None:
        return Verdict(lines, lines)
    if source.stat().st_size <= to_be_named:
        return judge_host([source], output, host)
    written = _sum(line.rstrip(b"\n") + b"\n" for line in _lines_in([source]))
    received = _sum(_lines_in(segments))
    same = written == received
    told = "the same lines, in another order" if same else "not the same lines"
    return Verdict(
        written[0], received[0], reordered=int(same), bytes_equal=False, examples=(told,)
    )


def parts_of(segments: Iterable[Path]) -> Iterator[bytes]:
    """Yield what is in files, one after the other, unpacked, a part at a time."""
    for path in segments:
        if is_packed(path):
            yield read_segment(path)
            continue
        with path.open("rb") as file:
            while part := file.read(_PART):
                yield part


def _equal_lines(source: Path, segments: Sequence[Path]) -> int | None:
    """Return how many lines both hold; None where they differ."""
    lines = 0
    with source.open("rb") as file:
        for part in parts_of(segments):
            if file.read(len(part)) != part:
                return None
            lines += part.count(b"\n")
        return None if file.read(1) else lines


def _sum(lines: Iterable[bytes]) -> tuple[int, int]:
    """Return how many lines there are, and the sum of their hashes, which no order changes."""
    count = hashes = 0
    for line in lines:
        count += 1
        hashes += hash(line)
    return count, hashes


def _lines_in(files: Iterable[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") if not is_packed(path) else BytesIO(read_segment(path)) as file:
            yield from file
