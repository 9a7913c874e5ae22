"""The metadata of a restored stream: which streams it was restored from, and whether it is whole.

nats-server makes a restored stream with a new time of creation and the old sequences. A receiver
that knows the archived stream goes on in the restored one: their sequences are the same up to the
end of the backup.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

ANCESTRY = "logship.restored_from"
RESTORING = "logship.restoring"


class Ancestor(NamedTuple):
    """An archived stream, by its creation (RFC 3339); sequences below `until` are shared."""

    created: str
    until: int


def ancestors(config: Mapping[str, Any]) -> tuple[Ancestor, ...]:
    """Return the streams that a stream was restored from, oldest first."""
    text = (config.get("metadata") or {}).get(ANCESTRY, "[]")
    try:
        return tuple(Ancestor(str(created), int(until)) for created, until in json.loads(text))
    except (ValueError, TypeError):
        return ()


def is_being_restored(config: Mapping[str, Any]) -> bool:
    """Whether a restore is not complete: nobody may write to the stream or rely on it."""
    return RESTORING in (config.get("metadata") or {})
