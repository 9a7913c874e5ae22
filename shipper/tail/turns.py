"""Decides which file is read next: rotation groups take turns, within a group the oldest file comes first."""

from collections.abc import Iterable, Mapping, Sequence

from shipper.tail.tailer import LINE_PATIENCE, Tailer

__all__ = ["Turns"]


class Turns:
    """The rotation groups that may have something to read, in the order of their turns.

    Nothing comes between the pieces of an over-long line while its rest is there, or has been waited for less than a second.
    """

    def __init__(self) -> None:
        self._queue: dict[str, None] = {}
        self._line: Tailer | None = None

    def join(self, groups: Iterable[str]) -> None:
        """Put groups at the end of the queue; those that are in it keep their place."""
        self._queue.update(dict.fromkeys(groups))

    def leave(self, group: str) -> None:
        """Take a group out of the queue until it joins again; nobody waits for a line of it any more."""
        self._queue.pop(group, None)
        if self._line is not None and self._line.entry.group == group:
            self._line = None

    def next(
        self, chains: Mapping[str, Sequence[Tailer]], now: int, grace: int, most: int
    ) -> list[Tailer]:
        """Return the next `most` files to read; `grace` is in nanoseconds. Groups that have nothing leave the queue.

        One compressed file at most, since each takes memory to decompress.
        """
        if (line := self._line) is not None and line.dirty and not line.suspect:
            return [line]
        if self.is_held(now):
            return []
        ready: list[Tailer] = []
        has_packed = False
        for group in list(self._queue):
            first = _first(chains.get(group, ()))
            if first is None:
                self.leave(group)
            elif first.dirty or first.is_settled(now, grace):
                is_packed = first.entry.packed is not None
                if not (is_packed and has_packed):
                    ready.append(first)
                has_packed |= is_packed
            if len(ready) >= most:
                break
        return ready

    def was_read(self, tailer: Tailer) -> None:
        """Put the group of a file that was read at the end of the queue; of a compressed one, when it was read to its end."""
        if tailer.entry.packed is None:
            self.leave(tailer.entry.group)
        self.join([tailer.entry.group])
        if tailer.is_in_line:
            self._line = tailer
        elif self._line is tailer:
            self._line = None

    def resume(self, tailers: Iterable[Tailer]) -> None:
        """Go on in the line that was read last of these files, if the offset of one is in a line."""
        begun = (tailer for tailer in tailers if tailer.is_in_line)
        self._line = max(begun, key=lambda tailer: tailer.seen, default=None)

    def is_held(self, now: int) -> bool:
        """Whether all files wait for the rest of a line, which is still being written; a second at most."""
        line = self._line
        if line is None or line.line_began is None or line.dirty or line.suspect:
            return False
        # a clock that was set back would make all files wait until it is there again
        return line.line_began <= now < line.line_began + LINE_PATIENCE


def _first(chain: Iterable[Tailer]) -> Tailer | None:
    # which file those behind it wait for; behind a doubtful one nobody knows what comes next
    for tailer in chain:
        if tailer.suspect:
            return None
        if tailer.dirty or (tailer.held and tailer.rotated is not None):
            return tailer
    return None
