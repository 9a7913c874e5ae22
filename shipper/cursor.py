"""Where the shipper stands in a file: the next byte to ship. A value; never touches the file."""

from dataclasses import dataclass

from broker.block import Identity, Origin

__all__ = ["Cursor", "after"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next byte to ship of a file, and what recognises the file again.

    `file` is the id that stays with it through renames and restarts, `path` only where it was last seen. `offset` is
    in bytes, the next one to ship; `identity` is the file's as it was at that offset. `seen` is when it was last
    read, in nanoseconds since the epoch.
    """

    file: str
    path: str
    offset: int
    identity: Identity
    seen: int


def after(origin: Origin) -> Cursor | None:
    """Return the cursor behind a block, from its headers alone; None for a claim, which belongs to no file.

    The one place where positions move, whether a block was acknowledged just now or is read back from the stream.
    """
    if origin.span is None or origin.identity is None:
        return None
    return Cursor(origin.span.file, origin.file, origin.span.end, origin.identity, origin.read_at)
