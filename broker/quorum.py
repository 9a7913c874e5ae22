"""Whether an answer about a stream can be believed: of a stream with replicas only its leader knows what it holds.

Asks nobody. Others answer too while there is no leader, and one that was cut off takes itself for the leader for 10 s and
more, while the others have elected another one.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["is_certain"]

_LEASE = 2_500_000_000  # nanoseconds; nobody else is elected within 4 s of a replica's last word with its leader (raft.go)


def is_certain(info: Mapping[str, Any]) -> bool:
    """Whether what a server tells of a stream (`STREAM.INFO`) comes from its leader, in touch with the majority."""
    replicas = int(info["config"].get("num_replicas") or 1)
    if replicas == 1:
        return True
    cluster = info.get("cluster") or {}
    others = [
        one
        for one in cluster.get("replicas") or ()
        if not one.get("offline") and 0 < one.get("active", 0) < _LEASE
    ]
    return bool(cluster.get("leader")) and 2 * (1 + len(others)) > replicas
