"""Whose line is unfinished at the end of a live file, so that nobody else's is glued to it. Decides only.

A line longer than a shipper sends at once comes in pieces; its rest may be long in coming, or never come.
"""

__all__ = ["Endings", "Source"]

Source = tuple[str, str]
"""A host and the id of one of its files, empty for lines of no file."""

_NEWLINE = b"\n"


class Endings:
    """The unfinished lines: by live file, whose it is."""

    def __init__(self, torn: dict[str, Source] | None = None) -> None:
        """Begin with those that are known."""
        self.torn: dict[str, Source] = dict(torn or {})

    def joined(self, live: str, source: Source, payload: bytes, *, follows: bool) -> bytes:
        """Return what to append for a section: with a newline before it when a line stands there that it does not go on with.

        `follows` says that nothing is missing between it and the section of its file before. `payload` is not empty.
        """
        owner = self.torn.pop(live, None)
        if not payload.endswith(_NEWLINE):
            self.torn[live] = source
        is_rest = owner is None or (owner == source and follows)
        return payload if is_rest else _NEWLINE + payload
