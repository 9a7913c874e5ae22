"""Texts in nats-server's configuration, whose strings are not JSON's: they know bytes, and no numbers of characters."""

__all__ = ["quoted"]

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """Return a text as a string of the configuration, whatever is in it."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character >= " " and character != "\x7f" else f"\\x{ord(character):02x}"
