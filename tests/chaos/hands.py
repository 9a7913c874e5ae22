"""Received files that other hands have taken: what they held counts as received as far as the receiver has said so by name.

A file is taken with its inode, so that whatever was written to it stands where it is kept.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.received import read_segment, segments_of

__all__ = ["Taken", "received_with", "sizes_with", "untold"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A live file of a host that is at `kept` now; `closed` is how many of its files stood before it.

    What was said of it stands in `log` behind the byte `since`.
    """

    host: str
    kept: Path
    closed: int
    log: Path
    since: int

    def told(self) -> int | None:
        """Return how many bytes the receiver has said that the file had; None as long as it has said nothing."""
        with self.log.open("rb") as file:
            file.seek(self.since)
            said = file.read().decode(errors="replace")
        name = re.escape(f"{self.host}.log")
        words = rf"\b{name}, of which ([0-9]+) bytes were (?:written|committed), is gone"
        found = re.search(words, said)
        return int(found[1]) if found else None

    def content(self) -> bytes:
        """Return what counts of it: nothing before it was told."""
        return self.kept.read_bytes()[: self.told() or 0]


def received_with(output: Path, host: str, taken: Iterable[Taken]) -> bytes:
    """Return what was received of a host, with what stood in files that were taken, in its place."""
    pieces = [read_segment(path) for path in segments_of(output, host)]
    mine = [one for one in taken if one.host == host]
    for number, one in enumerate(mine):
        pieces.insert(one.closed + number, one.content())
    return b"".join(pieces)


def sizes_with(sizes: dict[str, int], taken: Iterable[Taken]) -> dict[str, int]:
    """Return how many bytes there are of each host, with those of files that were taken."""
    found = dict(sizes)
    for one in taken:
        found[one.host] = found.get(one.host, 0) + (one.told() or 0)
    return found


def untold(taken: Sequence[Taken]) -> list[str]:
    """Return in sentences what was taken and not told of, or with more bytes than it had."""
    found = []
    for one in taken:
        told, had = one.told(), one.kept.stat().st_size
        if told is None:
            found.append(f"{one.host}: its live file of {had} bytes was taken, and nothing is said")
        elif told > had:
            found.append(f"{one.host}: its live file had {had} bytes, and {told} are said")
    return found
