"""Counts the lines that a file and the stream have in common, in bounded memory. No I/O."""

from dataclasses import dataclass, field

_LONGEST = 16 * 1024 * 1024  # bytes of a line; damaged files may have none for gigabytes
_MOST = 1_000_000  # lines of one side that are remembered


@dataclass(slots=True)
class LineCounts:
    """How many lines were `expected`, were `received`, and are the `same`, whatever their order.

    `same` is None if more than a million lines of one side are not on the other.
    """

    expected: int = 0
    received: int = 0
    same: int | None = 0
    _ours: bytes = b""  # unfinished lines
    _theirs: bytes = b""
    _unmatched: dict[int, int] = field(default_factory=dict)
    """How often the expected side is ahead with a line, by its hash; below 0: the other side."""

    def add(self, ours: bytes, theirs: bytes) -> None:
        """Add what follows in the stream and in the file."""
        is_equal = (self._ours, ours) == (self._theirs, theirs)
        expected, self._ours = _split(self._ours + ours)
        self.expected += len(expected)
        if is_equal:
            self._theirs = self._ours
            self.received += len(expected)
            self.same = None if self.same is None else self.same + len(expected)
            return
        received, self._theirs = _split(self._theirs + theirs)
        self.received += len(received)
        self._match(expected, 1)
        self._match(received, -1)

    def end_file(self) -> None:
        """Begin a line with what is added next; an unfinished one does not count."""
        self._ours = self._theirs = b""

    def _match(self, lines: list[bytes], side: int) -> None:
        for line in lines:
            if self.same is None:
                return
            key = hash(line)
            ahead = self._unmatched.pop(key, 0)
            self.same += ahead * side < 0
            if ahead + side:
                self._unmatched[key] = ahead + side
        if len(self._unmatched) > _MOST:
            self.same = None
            self._unmatched.clear()


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines of some bytes, and the unfinished last one."""
    *lines, rest = data.split(b"\n")
    return (lines, rest) if len(rest) < _LONGEST else ([*lines, rest], b"")
