"""Text and JSON that somebody else wrote: read and shown so that nothing in it can end, or act on, whoever looks at it.

Paths and answers of servers may hold control characters. Decides only.
"""

import json
from typing import Any


def printable(text: str) -> str:
    r"""Return the text with everything that is not to be printed as an escape: a newline as `\n`, ESC as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def json_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else, also for numbers and depths that cannot be written again."""
    try:
        found = json.loads(data)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
