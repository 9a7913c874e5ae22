"""Configurations of streams that a restore closes, fills and opens again. Decides only."""

import json
from collections.abc import Mapping
from typing import Any

from nats_logship.wire.restored import ANCESTRY, RESTORING, Ancestor, ancestors, is_being_restored

_CLOSED = "logship.restoring."
_REMEMBERED = 8


def is_closed(config: Mapping[str, Any]) -> bool:
    """Whether a stream is being restored and holds nothing but its archive's: nobody can have written to it since."""
    subjects = config.get("subjects") or ()
    return is_being_restored(config) and all(name.startswith(_CLOSED) for name in subjects)


def close_config(config: Mapping[str, Any], ancestor: Ancestor) -> dict[str, Any]:
    """Return the configuration of a stream while its archive is read in: it has no subject that anybody publishes to.

    `ancestor` is the stream that was archived.
    """
    shared = [Ancestor(made, min(until, ancestor.until)) for made, until in ancestors(config)]
    descent = {ANCESTRY: json.dumps([*shared, ancestor][-_REMEMBERED:])}
    subjects = {"subjects": [f"{_CLOSED}{config['name']}"]} if "subjects" in config else {}
    return mark_config(
        {**config, **subjects, "metadata": {**(config.get("metadata") or {}), **descent}}
    )


def mark_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream that stays, while others beside it are being restored."""
    return {**config, "metadata": {**_own(config), RESTORING: "run `logbroker restore` again"}}


def open_config(closed: Mapping[str, Any], archived: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream whose archive is read in: the archived subjects are its own again."""
    metadata = {key: value for key, value in _own(closed).items() if key != RESTORING}
    subjects = {"subjects": archived["subjects"]} if "subjects" in archived else {}
    return {**closed, **subjects, "metadata": metadata}


def _own(config: Mapping[str, Any]) -> dict[str, str]:
    # metadata that begins so is the server's to write, and it refuses to be told
    found = (config.get("metadata") or {}).items()
    return {key: value for key, value in found if not key.startswith("_nats.")}
