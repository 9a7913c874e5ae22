"""Where the shipper stands in a file: the next byte to ship. A value; never touches the file."""

from dataclasses import dataclass

from broker.wire.message import Identity, Section

__all__ = ["Cursor", "after"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next byte to ship of a file, and what recognises the file again.

    `file` is the id that stays with it through renames and restarts, `path` only where it was last seen. `offset` is
    in bytes, the next one to ship; `identity` is the file's as it was at that offset. `seen` is when it was last
    read, in nanoseconds since the epoch. `covered` is where the file's last section ended when the lines since then were
    left out and are in no message; None when that is `offset`.
    """

    file: str
    path: str
    offset: int
    identity: Identity
    seen: int
    covered: int | None = None

    @property
    def shipped(self) -> int:
        """The end of the file's last section."""
        return self.offset if self.covered is None else self.covered


def after(section: Section, read_at: int) -> Cursor | None:
    """Return the cursor behind a section of a message, None for what cannot be read again from there.

    The one place where positions move, whether a round was acknowledged just now or is read back from the stream.
    """
    if section.identity is None:
        return None
    span = section.span
    return Cursor(span.file, section.path, span.end, section.identity, read_at)
