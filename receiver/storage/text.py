r"""How a store keeps text: as valid UTF-8 without NUL; ordinary names stay as they are.

A path may hold bytes that are not UTF-8. Python reads such a byte as a lone surrogate, which SQLite
refuses. The store keeps each lone surrogate, NUL and U+FFFD itself as U+FFFD and four hex digits:
the file `\xff.log` is `�dcff.log` there.
"""

import re

_MARK = "\ufffd"
_ESCAPED = re.compile(f"[\0{_MARK}\ud800-\udfff]")
_ESCAPE = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def encode(text: str) -> str:
    """Return what the store keeps for a text; different texts are kept differently."""
    if text.isascii() and "\0" not in text:
        return text
    return _ESCAPED.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def decode(kept: bytes) -> str:
    """Return the text that `encode` was given."""
    if kept.isascii():
        return kept.decode("ascii")
    text = kept.decode("utf-8", "surrogateescape")
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
