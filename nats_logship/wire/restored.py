"""What a stream was restored from: kept in its own metadata, so that whoever knew the old one can go on with the new.

A server makes a restored stream anew, with another time of creation. The archive keeps its sequences, so a place in the
one is the same place in the other, up to where the backup ends.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

ANCESTRY = "logship.restored_from"
RESTORING = "logship.restoring"


class Ancestor(NamedTuple):
    """A stream, by its time of creation (RFC 3339), with which a restored one has the sequences below `until` in common."""

    created: str
    until: int


def ancestors(config: Mapping[str, Any]) -> tuple[Ancestor, ...]:
    """Return what a stream descends from, oldest first; nothing where it was never restored."""
    text = (config.get("metadata") or {}).get(ANCESTRY, "[]")
    try:
        return tuple(Ancestor(str(created), int(until)) for created, until in json.loads(text))
    except (ValueError, TypeError):
        return ()


def is_being_restored(config: Mapping[str, Any]) -> bool:
    """Whether a stream, or one beside it, holds only a part of its archive: nobody may write to it or rely on it."""
    return RESTORING in (config.get("metadata") or {})
