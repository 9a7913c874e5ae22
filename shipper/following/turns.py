"""Decides who is read next: chain after chain in turns, within a chain the oldest, and an over-long line to its end.

    families in a queue ──▶ of each the oldest file that has something ──▶ as many as the budget feeds, an equal share each

Reads nothing and opens nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shipper.files.sighting import FileKey
from shipper.files.tailer import LINE_PATIENCE, Tailer

__all__ = ["MOST_PER_TURN", "Turn", "Turns", "one_unpacked", "share"]

MOST_PER_TURN = 2 * 1024 * 1024
"""Bytes taken from one file at a time: enough to make the visit to a thread cheap, few enough to be fair."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Who is read next, in this order; `is_unsettled` when files were met whose last line may yet be finished."""

    tailers: Sequence[Tailer]
    is_unsettled: bool = False


def share(budget: int, readers: int, least: int) -> int:
    """Return how many bytes each may take: an equal part, at least `least`, so that small budgets still move on."""
    return max(least, min(MOST_PER_TURN, budget // max(1, readers)))


class Turns:
    """The chains that may have something to read, in the order in which they come to their turn."""

    def __init__(self) -> None:
        self._queue: dict[str, None] = {}
        self._line: Tailer | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def join(self, families: Iterable[str]) -> None:
        """Put the chains of these families at the end of the queue; those that stand in it keep their place."""
        self._queue.update(dict.fromkeys(families))

    def leave(self, family: str) -> None:
        """Take a chain out of the queue until it joins again."""
        self._queue.pop(family, None)

    def next(self, chains: Mapping[str, Sequence[Tailer]], now: int, grace: int, most: int) -> Turn:
        """Return the next `most` files to read; `grace` is in nanoseconds. Chains that have nothing leave the queue.

        Compressed files come on top of these: unpacking takes its time. Nobody while the rest of an over-long line is
        waited for, and only that file once it is there.
        """
        if (line := self._line) is not None and line.dirty and not line.suspect:
            self.join([line.sighting.family])
            return Turn([line])
        if self.is_held(now):
            return Turn([])
        ready: list[Tailer] = []
        is_unsettled = False
        for family in list(self._queue):
            first = _first(chains.get(family, ()))
            if first is None:
                self.leave(family)
            elif first.dirty or first.is_settled(now, grace):
                ready.append(first)
                most -= first.sighting.packed is None
            else:
                is_unsettled = True
            if most <= 0:
                break  # the others come after them in the queue
        return Turn(ready, is_unsettled)

    def took(self, tailer: Tailer) -> None:
        """Take note that a file has its turn: its chain goes to the end of the queue, but a compressed file goes on."""
        if tailer.sighting.packed is None:
            self._queue[tailer.sighting.family] = self._queue.pop(tailer.sighting.family)

    def was_read(self, tailer: Tailer) -> None:
        """Take note of whether a file that was read stands in the middle of an over-long line now."""
        if tailer.is_in_line:
            self._line = tailer
        elif self._line is tailer:
            self._line = None

    def resume(self, tailers: Iterable[Tailer]) -> None:
        """Go on in the line that was read last of these files, if one stands in the middle of a line."""
        begun = (tailer for tailer in tailers if tailer.is_in_line)
        self._line = max(begun, key=lambda tailer: tailer.seen, default=None)

    def is_held(self, now: int) -> bool:
        """Whether all files wait for the rest of a line, which is still being written; a second at most."""
        line = self._line
        if line is None or line.dirty or line.suspect:
            return False
        # a clock that was set back would make all files wait until it is there again
        return line.line_began <= now < line.line_began + LINE_PATIENCE


def one_unpacked(tailers: Sequence[Tailer], begun: FileKey | None) -> list[Tailer]:
    """Return these without the compressed files but one, since each takes memory: the one that was `begun`, or the first."""
    packed = [tailer for tailer in tailers if tailer.sighting.packed is not None]
    chosen = next((t for t in packed if t.sighting.key == begun), packed[0] if packed else None)
    return [t for t in tailers if t.sighting.packed is None or t is chosen]


def _first(chain: Iterable[Tailer]) -> Tailer | None:
    # which file those behind it wait for; behind a doubtful one nobody knows what comes next
    for tailer in chain:
        if tailer.suspect:
            return None
        if tailer.dirty or (tailer.held and tailer.rotated is not None):
            return tailer
    return None
