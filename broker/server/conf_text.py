"""Values as text of nats-server's configuration, whose strings are not JSON's: they know bytes, and no numbers of characters."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Section", "Variable", "lines_of", "quoted"]

Section = Mapping[str, Any]
"""Settings by name: texts, numbers, booleans, lists and sections; what is None is left out."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {
    **{number: f"\\x{number:02x}" for number in (*range(32), 127)},
    **{ord(sign): f"\\{letter}" for sign, letter in zip('"\\\n\r\t', '"\\nrt', strict=True)},
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A value that nats-server takes from its environment."""

    name: str


def quoted(text: str) -> str:
    """Return a text as a string of the configuration, whatever is in it."""
    return f'"{text.translate(_ESCAPES)}"'  # thousands of rights are written at each reload


def lines_of(section: Section) -> Iterator[str]:
    """Return the lines of a section."""
    for name, value in section.items():
        key = name if _PLAIN.fullmatch(name) else quoted(name)
        if isinstance(value, Mapping):
            yield f"{key} {{"
            yield from (f"  {line}" for line in lines_of(value))
            yield "}"
        elif value is not None:
            yield f"{key}: {_text(value)}"


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case Variable(name):
            return f"${name}"
        case Mapping():
            inside = (
                f"{quoted(name)}: {_text(one)}" for name, one in value.items() if one is not None
            )
            return f"{{ {', '.join(inside)} }}"
        case Sequence() if not isinstance(value, str):
            return f"[{', '.join(map(_text, value))}]"
        case _:
            return quoted(str(value))
