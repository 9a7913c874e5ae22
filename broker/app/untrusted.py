"""JSON that somebody else wrote: read so that nothing in it can end whoever looks at it, or shows it. Decides only."""

import json
from typing import Any

__all__ = ["json_object"]

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
