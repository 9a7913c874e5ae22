"""Where the last whole line of a file ends: where a file is begun that is read from its end on. A value."""

from dataclasses import dataclass

__all__ = ["LastLine"]


@dataclass(frozen=True, slots=True)
class LastLine:
    """The offset behind a file's last newline, and the bytes that stand before it."""

    offset: int
    tail: bytes
