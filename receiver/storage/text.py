r"""Text as a store keeps it: valid UTF-8 without NUL, ordinary names as they are.

A path may hold any byte but a slash and NUL, and Python has a byte that is not UTF-8 as a lone surrogate, which SQLite
takes no text with. The store keeps each such character, NUL and U+FFFD itself as U+FFFD and four hex digits: the file
`\xff.log` is `�dcff.log` there.
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
    """Return the text that `encode` had; what other hands wrote that is not UTF-8, as Python reads a path."""
    if kept.isascii():
        return kept.decode("ascii")
    text = kept.decode("utf-8", "surrogateescape")
    return _KEPT.sub(lambda found: chr(int(found[1], 16)), text)
