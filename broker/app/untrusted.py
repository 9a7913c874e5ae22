"""Text and JSON that somebody else wrote: read and shown so that nothing in it can end, or act on, whoever looks at it.

Paths and answers of servers may hold control characters. Decides only.
"""

import json
from typing import Any

__all__ = ["json_object", "printable"]


def printable(text: str) -> str:
    r"""Return the text with everything that is not to be printed as an escape: a newline as `\n`, ESC as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


_MOST_LEVELS = 8  # of objects and lists in each other
_MOST_NUMBER = 2**64


def json_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object, None for anything else; what is nested too deeply in it, and too large numbers, are None."""
    try:
        found = json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return _bounded(found, _MOST_LEVELS) if isinstance(found, dict) else None


def _bounded(value: Any, levels: int) -> Any:
    match value:
        case dict() if levels:
            return {name: _bounded(one, levels - 1) for name, one in value.items()}
        case list() if levels:
            return [_bounded(one, levels - 1) for one in value]
        case bool() | str():
            return value
        case int() | float() if abs(value) <= _MOST_NUMBER:
            return value
        case _:
            return None
