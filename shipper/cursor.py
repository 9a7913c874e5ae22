"""Where the shipper stands in a file: the next byte to ship. A value; never touches the file."""

from dataclasses import dataclass

from broker.block import Identity, Origin

__all__ = ["Cursor", "after"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next byte to ship of a file, and what recognises the file again.

    `file` is the id that stays with it through renames and restarts, `path` only where it was last seen. `offset` is
    in bytes, the next one to ship; `identity` is the file's as it was at that offset. `seen` is when it was last
    read, in nanoseconds since the epoch. `covered` is where the file's last block ended when the lines since then were
    left out and are in no block; None when that is `offset`.
    """

    file: str
    path: str
    offset: int
    identity: Identity
    seen: int
    covered: int | None = None

    @property
    def shipped(self) -> int:
        """The end of the file's last block."""
        return self.offset if self.covered is None else self.covered


def after(origin: Origin) -> Cursor | None:
    """Return the cursor behind a block, from its headers alone; None for a claim, and for what cannot be read again.

    The one place where positions move, whether a block was acknowledged just now or is read back from the stream.
    """
    if origin.span is None or origin.identity is None:
        return None
    return Cursor(origin.span.file, origin.file, origin.span.end, origin.identity, origin.read_at)
