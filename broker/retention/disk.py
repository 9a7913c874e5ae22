"""Holds a stream's limit down to what the stream holds while the disk is short, whoever fills it, and gives it back after.

A disk that is full stops nats-server's streams; a limit that is reached is a clean refusal, and hosts wait. The limit from
before is noted in the stream's metadata: whoever dies here, or leads no more, leaves the note to the next one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.retention.water import Disk
from broker.topology import is_computed

__all__ = ["asked_for", "limit_for", "without_note"]

_NOTE = "logship.held_down"
_NOTED = re.compile(r"(-?[0-9]{1,19}) (-?[0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class _Limit:
    """The limit in bytes, -1 for none, and what it was before it was held down; None while it is not."""

    now: int
    before: int | None = None


def limit_for(info: Mapping[str, Any], disk: Disk | None) -> dict[str, Any] | None:
    """Return a stream's configuration with the limit that it should have, None where it has that; `info` as of STREAM.INFO."""
    config = info["config"]
    limit = _limit(config)
    wanted = limit
    if disk is None or config.get("discard") != "new" or disk.is_well:
        wanted = limit if limit.before is None else _Limit(limit.before)
    elif disk.is_short:
        before = limit.now if limit.before is None else limit.before
        held = max(int(info["state"]["bytes"]), 1)
        wanted = _Limit(min(held, before) if before > 0 else held, before)
    return None if wanted == limit else _with(config, wanted)


def asked_for(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person asked for of a stream's configuration: no limit that is held down, and none that was computed."""
    asked = without_note(config)
    if is_computed(asked):
        del asked["max_bytes"]
    return asked


def without_note(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream's configuration with the limit that it has while the disk is not short."""
    limit = _limit(config)
    return _with(config, _Limit(limit.now if limit.before is None else limit.before))


def _limit(config: Mapping[str, Any]) -> _Limit:
    """Return the limit of a configuration; a note for another limit than it has was left behind by a person's change."""
    now = int(config.get("max_bytes", -1))
    found = _NOTED.fullmatch(str((config.get("metadata") or {}).get(_NOTE)))
    return _Limit(now, int(found[2])) if found and int(found[1]) == now else _Limit(now)


def _with(config: Mapping[str, Any], limit: _Limit) -> dict[str, Any]:
    metadata = {
        name: text for name, text in (config.get("metadata") or {}).items() if name != _NOTE
    }
    if limit.before is not None:
        metadata[_NOTE] = f"{limit.now} {limit.before}"
    return {**config, "max_bytes": limit.now, "metadata": metadata}
