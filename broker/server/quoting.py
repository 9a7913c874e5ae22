"""Texts in nats-server's configuration, whose strings are not JSON's: they know bytes, and no numbers of characters."""

__all__ = ["quoted"]

_ESCAPES = {
    **{number: f"\\x{number:02x}" for number in (*range(32), 127)},
    **{ord(sign): f"\\{letter}" for sign, letter in zip('"\\\n\r\t', '"\\nrt', strict=True)},
}


def quoted(text: str) -> str:
    """Return a text as a string of the configuration, whatever is in it."""
    return f'"{text.translate(_ESCAPES)}"'  # thousands of rights are written at each reload
