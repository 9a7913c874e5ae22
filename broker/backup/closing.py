"""Builds the configurations with which a restore closes a stream and opens it again.

A closed stream has one subject that nobody publishes to. Its metadata says that a restore is under
way, and which streams it descends from (`nats_logship/wire/restored.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

from nats_logship.wire.restored import ANCESTRY, RESTORING, Ancestor, ancestors, is_being_restored

_CLOSED = "logship.restoring."
_KEPT = "logship.restoring_to"
_MARKS = (RESTORING, _KEPT)
_REMEMBERED = 8  # ancestors


def is_closed(config: Mapping[str, Any]) -> bool:
    """Return whether a stream is closed: nobody can have written to it since its archive."""
    subjects = config.get("subjects") or ()
    return is_being_restored(config) and all(name.startswith(_CLOSED) for name in subjects)


def close_config(
    config: Mapping[str, Any], ancestor: Ancestor, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the configuration of a stream during the upload: nobody publishes to its subject.

    `ancestor` is the stream that was archived; `kept` is as for `mark_config`.
    """
    shared = [Ancestor(made, min(until, ancestor.until)) for made, until in ancestors(config)]
    ancestry = {ANCESTRY: json.dumps([*shared, ancestor][-_REMEMBERED:])}
    subjects = {"subjects": [f"{_CLOSED}{config['name']}"]} if "subjects" in config else {}
    metadata = {**(config.get("metadata") or {}), **ancestry}
    return mark_config({**config, **subjects, "metadata": metadata}, kept)


def mark_config(config: Mapping[str, Any], kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the configuration of a stream with the mark that a restore is under way.

    `kept` has the fields of each stream that the restore keeps, for the next attempt.
    """
    marks = {RESTORING: "run `logbroker restore` again", _KEPT: json.dumps(kept or {})}
    return {**config, "metadata": {**_select_own(config), **marks}}


def read_kept(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of each stream that were saved in a marked stream."""
    found: dict[str, dict[str, Any]] = json.loads(config["metadata"].get(_KEPT, "{}"))
    return found


def open_config(closed: Mapping[str, Any], archived: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream after the upload: with the archived subjects."""
    metadata = {key: value for key, value in _select_own(closed).items() if key not in _MARKS}
    subjects = {"subjects": archived["subjects"]} if "subjects" in archived else {}
    return {**closed, **subjects, "metadata": metadata}


def _select_own(config: Mapping[str, Any]) -> dict[str, str]:
    # nats-server refuses to be given its own metadata
    found = (config.get("metadata") or {}).items()
    return {key: value for key, value in found if not key.startswith("_nats.")}
