"""What the headers of a message say, where a receiver would go by them too. Decides only.

The payload is not looked at: that a compressed one cannot be read, or holds other lines than it says, is not noticed here.
"""

from dataclasses import dataclass

from broker.client.arrived import Arrived
from broker.wire.message import MalformedMessage, Origin, decode_origin

__all__ = ["Told", "told"]

_ENCODINGS = frozenset({"", "zstd"})


@dataclass(frozen=True, slots=True)
class Told:
    """How many lines a message has, and the bytes of its payload as stored; `origin` is None where no agent sent it."""

    lines: int
    size: int
    origin: Origin | None

    @property
    def agent(self) -> str:
        """The agent that sent it, empty for another client's message."""
        return self.origin.agent if self.origin else ""

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the source files, in the order of their sections."""
        return tuple(section.path for section in self.origin.sections) if self.origin else ()


def told(message: Arrived) -> Told | None:
    """Read the headers of a message that came without its payload; None for a message that a receiver sets aside.

    Another client's message counts as one line.
    """
    headers, size = message.headers or {}, message.size
    try:
        origin = decode_origin(headers)
    except MalformedMessage:
        return None
    if origin is None:
        return Told(1, size, None) if headers.get("Content-Encoding", "") in _ENCODINGS else None
    if not origin.compressed and origin.size != size:
        return None
    return Told(origin.lines, size, origin)
