r"""Text as a store keeps it: valid UTF-8 without NUL, ordinary names as they are.

A path may hold bytes that are not UTF-8. Python reads such a byte as a lone surrogate, and SQLite
takes no text that holds one. The store keeps each lone surrogate, NUL and U+FFFD itself as U+FFFD
and four hex digits: the file `\xff.log` is `�dcff.log` there.
"""

import re

_MARK = "\ufffd"
_ODD = re.compile(f"[\0{_MARK}\ud800-\udfff]")
_KEPT = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def encode(text: str) -> str:
    """Return what the store keeps for a text: another one for each, so equal means equal."""
    if text.isascii() and "\0" not in text:
        return text
    return _ODD.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def decode(kept: bytes) -> str:
    """Return the text that `encode` was given."""
    if kept.isascii():
        return kept.decode("ascii")
    text = kept.decode("utf-8", "surrogateescape")
    return _KEPT.sub(lambda found: chr(int(found[1], 16)), text)
