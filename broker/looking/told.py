"""What the headers of a message tell, where a receiver would go by them too. Decides only.

The payload is not looked at, so a compressed one that cannot be unfolded is not noticed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.block import MAX_LINES_BYTES, MalformedBlock, Origin, decode_origin

__all__ = ["Told", "size_of", "told"]

_ENCODINGS = frozenset({"", "zstd"})


@dataclass(frozen=True, slots=True)
class Told:
    """How many lines a message has, and the bytes of its payload as stored; None where it does not come from an agent."""

    lines: int
    size: int
    origin: Origin | None

    @property
    def agent(self) -> str:
        """The agent that sent it, empty for another client's message."""
        return self.origin.agent if self.origin else ""

    @property
    def file(self) -> str:
        """The path of the source file, empty where none is named."""
        return self.origin.file if self.origin and self.origin.span else ""


def told(headers: Mapping[str, str]) -> Told | None:
    """Read the headers of a message that came without its payload; None for a message that a receiver sets aside.

    Another client's message counts as one line.
    """
    size = size_of(headers)
    try:
        origin = decode_origin(headers)
    except MalformedBlock:
        return None
    if origin is None:
        return Told(1, size, None) if headers.get("Content-Encoding", "") in _ENCODINGS else None
    if origin.span is None:
        return Told(0, size, origin)
    length = origin.span.end - origin.span.start
    most_lines = min(length + 1, MAX_LINES_BYTES) if origin.compressed else size
    is_whole = origin.compressed or origin.filtered or size - length in {0, 1}
    is_true = is_whole and origin.lines <= most_lines
    return Told(origin.lines, size, origin) if is_true else None


def size_of(headers: Mapping[str, str]) -> int:
    """Return the bytes of a message's payload, which the server tells where it leaves it out (`headers_only`)."""
    text = headers.get("Nats-Msg-Size", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
