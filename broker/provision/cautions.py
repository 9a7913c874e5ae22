"""Which settings of the stream break a promise that we make otherwise: allowed, and said. Decides; changes nothing."""

from broker.topology import UNBOUNDED, Topology

__all__ = ["cautions"]


def cautions(topology: Topology) -> tuple[str, ...]:
    """Return what a person should know who asks for this, a line each."""
    per_host, consumers = topology.max_msgs_per_subject, topology.max_consumers
    found = {
        "storage = memory: acknowledged is not on disk; all lines and offsets are gone when nats-server stops": (
            topology.storage == "memory"
        ),
        "discard = old: a full stream lets its oldest lines go, received or not; receivers report the gaps": (
            topology.discard == "old"
        ),
        f"max_msgs_per_subject = {per_host}: a host's oldest lines beyond that go, received or not, and a shipper that "
        "loses its positions cannot find them there again": (
            _bounds(per_host) and not topology.discard_new_per_subject
        ),
        f"max_msgs_per_subject = {per_host} with discard_new_per_subject: a host with so many messages waits until they "
        "are older than max_age, received or not": (
            _bounds(per_host) and topology.discard_new_per_subject
        ),
        f"max_consumers = {consumers}: {topology.partitions} are the partitions'; a shipper that starts needs one of its "
        "own for a moment": _bounds(consumers),
        f"streams = {topology.stream_count}: with {topology.partitions} partitions some of them stay empty": (
            topology.stream_count > topology.partitions
        ),
        f"replicas = {topology.replicas}: no more servers may fail than with {(topology.replicas or 1) - 1}": (
            topology.replicas in (2, 4)
        ),
    }
    return tuple(words for words, applies in found.items() if applies)


def _bounds(limit: int | None) -> bool:
    return limit is not None and limit != UNBOUNDED
