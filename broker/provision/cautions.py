"""Which settings of the streams break a promise that we make otherwise: allowed, and logged. Decides; changes nothing."""

from broker.topology import Topology

__all__ = ["cautions"]


def cautions(topology: Topology) -> tuple[str, ...]:
    """Return what a person should know who asks for this, a line each."""
    found = {
        "discard = old: a full stream lets its oldest lines go, received or not; receivers report the gaps": (
            topology.discard == "old"
        ),
        f"streams = {topology.stream_count}: with {topology.partitions} partitions some of them stay empty": (
            topology.stream_count > topology.partitions
        ),
        f"replicas = {topology.replicas}: no more servers may fail than with {(topology.replicas or 1) - 1}": (
            topology.replicas in (2, 4)
        ),
    }
    return tuple(words for words, applies in found.items() if applies)
