"""Whether an answer about a stream can be believed: of a stream with replicas only its leader knows what it holds.

Asks nobody. Others answer too while there is no leader, and one that was cut off takes itself for the leader for 10 s and
more, while the others have elected another one.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["is_certain", "is_level"]

_LEASE = 2_500_000_000  # nanoseconds; nobody else is elected within 4 s of a replica's last word with its leader (raft.go)


def is_certain(info: Mapping[str, Any]) -> bool:
    """Whether what a server tells of a stream (`STREAM.INFO`) comes from its leader, in touch with the majority."""
    replicas = int(info["config"].get("num_replicas") or 1)
    if replicas == 1:
        return True
    leads = bool((info.get("cluster") or {}).get("leader"))
    return leads and 2 * (1 + len(_in_touch(info))) > replicas


def is_level(info: Mapping[str, Any]) -> bool:
    """Whether every replica that could be asked has all that the leader tells of; whoever is asked after this knows it."""
    return is_certain(info) and all(
        one.get("current") and not one.get("lag") for one in _in_touch(info)
    )


def _in_touch(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        one
        for one in (info.get("cluster") or {}).get("replicas") or ()
        if not one.get("offline") and 0 < one.get("active", 0) < _LEASE
    ]
