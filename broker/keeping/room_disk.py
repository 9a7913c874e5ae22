"""How the stream's limit follows the disk below it. Decides only.

The server counts messages, the disk counts files: one whose messages are half gone is as large as before, so a stream
whose receivers are not all there may take up to twice what it holds. A disk that is full stops the stream for good.

What the limit was before stands in the stream's metadata, beside the one that is held down: whoever keeps the stream's
room next knows what to give back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.topology import is_computed

__all__ = ["Disk", "Limit", "follow", "limited", "noted", "unnoted", "wished"]

_NOTE = "logship.held_down"
_NOTED = re.compile(r"(-?[0-9]{1,19}) (-?[0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the store, in bytes: what is free, and what is to stay free."""

    free: int
    reserve: int

    @property
    def is_short(self) -> bool:
        """Whether half of the reserve is used up."""
        return self.free < self.reserve // 2

    @property
    def is_well(self) -> bool:
        """Whether there is as much free again as there is to be."""
        return self.free >= self.reserve


@dataclass(frozen=True, slots=True)
class Limit:
    """The stream's limit in bytes, -1 for none, and what it was before the disk ran short; None while it did not."""

    now: int
    before: int | None = None

    @property
    def asked(self) -> int:
        """The limit that somebody has set."""
        return self.now if self.before is None else self.before


def follow(limit: Limit, held: int, disk: Disk) -> Limit:
    """Return what the limit should be for a stream that holds so many bytes: no more than that while the disk is short.

    Somebody who has changed it meanwhile gets it back as he left it.
    """
    if disk.is_short:
        before = limit.now if limit.before is None else limit.before
        return Limit(min(max(held, 1), before if before > 0 else held + 1), before)
    if limit.before is not None and disk.is_well:
        return Limit(limit.before)
    return limit


def noted(config: Mapping[str, Any]) -> Limit:
    """Return the limit of a stream's configuration; a note that tells of another one than it has by now tells nothing."""
    now = int(config.get("max_bytes", -1))
    found = _NOTED.fullmatch(str(_metadata(config).get(_NOTE)))
    if found is None or int(found[1]) != now:
        return Limit(now)
    return Limit(now, int(found[2]))


def limited(config: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
    """Return a stream's configuration with that limit, and a note of what it was before."""
    note = {} if limit.before is None else {_NOTE: f"{limit.now} {limit.before}"}
    rest = unnoted(config)
    return {**rest, "max_bytes": limit.now, "metadata": {**_metadata(rest), **note}}


def unnoted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream's configuration without the note."""
    metadata = {name: text for name, text in _metadata(config).items() if name != _NOTE}
    return {**config, **({"metadata": metadata} if "metadata" in config else {})}


def wished(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a stream's configuration somebody asked for: no limit that is held down, and none that was computed."""
    asked = {**unnoted(config), "max_bytes": noted(config).asked}
    if is_computed(asked):
        del asked["max_bytes"]
    return asked


def _metadata(config: Mapping[str, Any]) -> Mapping[str, str]:
    return config.get("metadata") or {}
