"""Text for people: counts, lists of names, and text of others made safe to show."""

import re
from collections.abc import Iterable, Sequence
from textwrap import shorten

_PLURALS = {"entry": "entries"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OF_ONE = {"are": "is", "have": "has", "were": "was"}
# control characters, marks that reverse the direction of text, and lone surrogates
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def format_count(count: int, noun: str, verb: str = "", form: str = "") -> str:
    """Return a number with its noun and verb: `1 host`, `1 message waits`, `2 messages wait`.

    `noun` is singular, `verb` plural; `form` is the number's format specification.
    """
    done = f" {verb}" if verb else ""
    if count == 1:
        done = f" {_OF_ONE.get(verb, f'{verb}s')}" if verb else ""
    shown = noun if count == 1 else _PLURALS.get(noun, f"{noun}s")
    return f"{count:{form}} {shown}{done}"


def format_names(names: Sequence[object], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order, neighbours as a range: `0 to 3, 7`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join(" to ".join(map(str, one)) for one in ranges)


def printable(text: str) -> str:
    r"""Return a text of others with control characters escaped: newline as `\n`, ESC as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def flatten_error(text: str, most: int = 400) -> str:
    """Return an error of a library in one line without colours, cut between words.

    The lines of its causes, which an arrow begins, are joined by colons.
    """
    plain = _COLOUR.sub("", text).removeprefix("Kernel error -> ")
    causes = (" ".join(part.split()) for part in plain.split("↳"))
    return shorten(": ".join(causes), most, placeholder=" …")


def escape(lines: bytes) -> bytes:
    r"""Return lines with control characters as escapes such as `\x1b`; tabs and newlines stay."""
    text = lines.decode("utf-8", "backslashreplace")
    return _ACTIVE.sub(lambda found: ascii(found[0])[1:-1], text).encode()


def prefix_lines(host: str, lines: bytes) -> bytes:
    """Return lines with `host: ` before each."""
    if not lines:
        return lines
    # the host is from the subject, which any client may have chosen
    prefix = f"{host}: ".encode("utf-8", "surrogateescape")
    return prefix + lines.removesuffix(b"\n").replace(b"\n", b"\n" + prefix) + b"\n"
