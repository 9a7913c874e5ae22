"""What a stream was restored from: kept in its own metadata, so that whoever knew the old one can go on with the new.

A server makes a restored stream anew, with another time of creation. The archive keeps its sequences, so a place in the
one is the same place in the other, up to where the backup ends.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

_FROM = "logship.restored_from"
_RESTORING = "logship.restoring"
_CLOSED = "logship.restoring."
_REMEMBERED = 8


class Ancestor(NamedTuple):
    """A stream, by its time of creation (RFC 3339), with which a restored one has the sequences below `until` in common."""

    created: str
    until: int


def ancestors(config: Mapping[str, Any]) -> tuple[Ancestor, ...]:
    """Return what a stream descends from, oldest first; nothing where it was never restored."""
    text = (config.get("metadata") or {}).get(_FROM, "[]")
    try:
        return tuple(Ancestor(str(created), int(until)) for created, until in json.loads(text))
    except (ValueError, TypeError):
        return ()


def is_being_restored(config: Mapping[str, Any]) -> bool:
    """Whether a stream, or one beside it, holds only a part of its archive: nobody may write to it or rely on it."""
    return _RESTORING in (config.get("metadata") or {})


def is_closed(config: Mapping[str, Any]) -> bool:
    """Whether a stream is being restored and holds nothing but its archive's: nobody can have written to it since."""
    subjects = config.get("subjects") or ()
    return is_being_restored(config) and all(name.startswith(_CLOSED) for name in subjects)


def restoring(config: Mapping[str, Any], ancestor: Ancestor) -> dict[str, Any]:
    """Return the configuration of a stream while its archive is read in: it has no subject that anybody publishes to.

    `ancestor` is the stream that was archived.
    """
    shared = [Ancestor(made, min(until, ancestor.until)) for made, until in ancestors(config)]
    descent = {_FROM: json.dumps([*shared, ancestor][-_REMEMBERED:])}
    subjects = {"subjects": [f"{_CLOSED}{config['name']}"]} if "subjects" in config else {}
    return marked({**config, **subjects, "metadata": {**(config.get("metadata") or {}), **descent}})


def marked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream that stays, while others beside it are being restored."""
    return {**config, "metadata": {**_own(config), _RESTORING: "run `logbroker restore` again"}}


def opened(closed: Mapping[str, Any], archived: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream whose archive is read in: the archived subjects are its own again."""
    metadata = {key: value for key, value in _own(closed).items() if key != _RESTORING}
    subjects = {"subjects": archived["subjects"]} if "subjects" in archived else {}
    return {**closed, **subjects, "metadata": metadata}


def _own(config: Mapping[str, Any]) -> dict[str, str]:
    # metadata that begins so is the server's to write, and it refuses to be told
    found = (config.get("metadata") or {}).items()
    return {key: value for key, value in found if not key.startswith("_nats.")}
