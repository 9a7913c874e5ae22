"""What is asked of a file that is being read, and what came of it. Values only; `reader` reads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shipper.files.unpacker import Unpacker

__all__ = ["Reading", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """Read at most `limit` bytes from `offset` on; `head` and `tail` are what must still stand at 0 and before it.

    A file that has less than `least` bytes was truncated since it had that many. A compressed file is read by way of
    its `unpacker`, in bytes of its content.
    """

    descriptor: int
    offset: int
    limit: int
    least: int
    head: bytes
    tail: bytes
    unpacker: "Unpacker | None" = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: runs of whole lines, and the unfinished line behind them.

    `intact` is False when what had been read before is gone; nothing was read then. `is_complete` is False at the end
    of a compressed file that has no proper end yet; `damage` says why it cannot have one. `is_underway`: what stands
    before the offset is still being unpacked.
    """

    intact: bool
    size: int
    modified: int
    runs: tuple[bytes, ...] = ()
    rest: bytes = b""
    error: str = ""
    is_complete: bool = True
    damage: str = ""
    is_underway: bool = False
