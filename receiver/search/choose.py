"""Chooses lines of a block by what pyarrow finds in all of them at once."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from receiver.search.scan import Range

Mask = Callable[[pa.Array], pa.Array]
"""Returns which lines are wanted, of lines without their newlines."""


def choose(block: bytearray, runs: Sequence[Range], mask: Mask) -> list[Range]:
    """Return the wanted lines of some runs of whole lines in a block, as runs."""
    if not runs:
        return []
    text = b"".join([block[start:end] for start, end in runs])
    lines = pa.array(text.removesuffix(b"\n").split(b"\n"), pa.binary())
    begins = memoryview(lines.buffers()[1]).cast("i")  # without the newlines before them
    wanted, first, found = pc.run_end_encode(mask(lines)), 0, list[Range]()
    for end, is_wanted in zip(wanted.run_ends.to_pylist(), wanted.values.to_pylist(), strict=True):
        if is_wanted:
            found.append((begins[first] + first, min(len(text), begins[end] + end)))
        first = end
    if len(runs) == 1:
        return [(runs[0][0] + start, runs[0][0] + end) for start, end in found]
    return [*_translate(found, runs)]


def _translate(parts: Sequence[Range], runs: Sequence[Range]) -> Iterator[Range]:
    """Yield parts of joined runs as parts of the block."""
    number, at = 0, 0  # where a run begins in the joined ones
    for start, end in parts:
        while start < end:
            begin, stop = runs[number]
            if start - at < stop - begin:
                first = begin + start - at
                last = min(stop, first + end - start)
                yield first, last
                start += last - first
            else:
                number, at = number + 1, at + stop - begin
