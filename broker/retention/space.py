"""How much of a stream has to go, by its limits and by the disk, and which limit a stream has while the disk is short. Decides only.

A disk that is full stops nats-server's streams; a limit that is reached is a clean refusal, and hosts wait. So while the disk is
short, whoever fills it, a stream's limit is held down to what the stream holds, and given back after. The limit from before is
noted in the stream's metadata: whoever dies here, or leads no more, leaves the note to the next one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.topology import is_computed
from broker.wire.streams import MAX_PAYLOAD

__all__ = ["Disk", "asked_for", "excess", "limit_for", "without_note"]

_HIGH, _LOW = 90, 80  # percent of a limit: from when on, and down to which, messages are purged
_ROUND_BYTES = 2 * MAX_PAYLOAD  # what a host or two may publish between two looks
_ROUND_MESSAGES = 2000
_NOTE = "logship.held_down"  # "<limit now> <limit before>"
_NOTED = re.compile(r"(-?[0-9]{1,19}) (-?[0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the store, in bytes: how much is free, and how much is to stay free."""

    free: int
    reserve: int

    @property
    def is_short(self) -> bool:
        """Whether half of the reserve is used up."""
        return self.free < self.reserve // 2


def excess(info: Mapping[str, Any], disk: Disk | None = None) -> float:
    """Return the share of a stream that has to go, from 0 to 1: 0 below the high-water mark, else down to the low-water mark.

    `info` is the answer to STREAM.INFO.
    """
    state, config = info["state"], info["config"]
    size = int(state["bytes"])
    missing = disk.reserve - disk.free if disk is not None and disk.is_short else 0
    return min(
        max(
            _above(size, int(config.get("max_bytes", -1)), _ROUND_BYTES),
            _above(int(state["messages"]), int(config.get("max_msgs", -1)), _ROUND_MESSAGES),
            missing / size if size else 0.0,
        ),
        1.0,
    )


def _above(held: int, limit: int, round_: int) -> float:
    """Return the share of `held` to remove, where it is above the high-water mark.

    Below a small limit the mark leaves space for a round: a round that is refused whole would wait for ever.
    """
    if limit <= 0 or held <= 0:
        return 0.0
    high = min(limit * _HIGH // 100, limit - min(round_, limit // 2))
    return (held - high * _LOW // _HIGH) / held if held >= high else 0.0


def limit_for(info: Mapping[str, Any], disk: Disk | None) -> dict[str, Any] | None:
    """Return a stream's configuration with the limit that it should have, None where it has that; `info` as of STREAM.INFO."""
    config = info["config"]
    now, before = int(config.get("max_bytes", -1)), _noted(config)
    if disk is None or config.get("discard") != "new" or disk.free >= disk.reserve:
        return None if before is None else without_note(config)
    held = max(int(info["state"]["bytes"]), 1)
    usual = now if before is None else before
    wanted = min(held, usual) if usual > 0 else held
    if not disk.is_short or (before is not None and wanted == now):
        return None
    metadata = {**(config.get("metadata") or {}), _NOTE: f"{wanted} {usual}"}
    return {**config, "max_bytes": wanted, "metadata": metadata}


def asked_for(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person asked for of a stream's configuration: no limit that is held down, and none that was computed."""
    asked = without_note(config)
    if is_computed(asked):
        del asked["max_bytes"]
    return asked


def without_note(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream's configuration with the limit that it has while the disk is not short."""
    before, found = _noted(config), dict(config.get("metadata") or {})
    found.pop(_NOTE, None)
    limit = int(config.get("max_bytes", -1)) if before is None else before
    return {**config, "max_bytes": limit, "metadata": found}


def _noted(config: Mapping[str, Any]) -> int | None:
    """Return the limit that is held down; a note for another limit than there is was left behind by a person's change."""
    found = _NOTED.fullmatch(str((config.get("metadata") or {}).get(_NOTE)))
    return int(found[2]) if found and int(found[1]) == config.get("max_bytes") else None
