"""The status of a broker as a table. Decides only."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from broker.app.units import format_duration, format_size
from broker.inspect.status import PartitionStatus, Replica, Site, Status, StreamStatus

__all__ = [
    "PARTITION_HEAD",
    "facts",
    "partition_rows",
    "short_duration",
]

PARTITION_HEAD = ("partition", "next", "behind", "oldest", "epoch", "committed", "owner")
_OPEN = "OPEN: no credentials"


def short_duration(seconds: float) -> str:
    """Write a length of time as people say it: to the second below an hour, then to the minute."""
    whole = int(seconds)
    return format_duration(timedelta(seconds=whole if whole < 3600 else whole // 60 * 60))


def facts(status: Status) -> Iterator[tuple[str, str]]:
    """Yield what is said of the broker above its partitions, each with its name."""
    yield "server", f"{status.server}, nats-server {status.version}"
    for node in status.nodes:
        yield "node", _node(node)
    if not status.nodes:
        yield "node", "no report: not a logbroker, or this user may not ask it"
    for stream in status.streams:
        yield from _stream(stream)
    limit = "" if status.store_limit is None else f" of {format_size(status.store_limit)}"
    yield "store", f"{format_size(status.store_used)}{limit}"
    current, existing = status.current_partitions, len(status.partitions)
    spread = f", over {current} of {existing} partitions" if 0 < current < existing else ""
    yield "hosts", f"{status.hosts or 0}{spread}"
    for pause in status.pauses:
        yield "pause", f"{pause.hosts}: {pause}"


def _node(node: Mapping[str, Any]) -> str:
    """Write a server's report; it may be of another version and have other fields."""
    parts = [str(node.get("name", "?"))]
    if version := node.get("version"):
        commit = f" [{str(node['commit'])[:7]}]" if node.get("commit") else ""
        parts.append(f"nats-server {version}{commit}")
    if started := node.get("started"):
        parts.append(f"since {_short_time(str(started))}")
    if isinstance(free := node.get("free"), int):
        parts.append(f"{format_size(free)} of its disk free")
    if node.get("encrypted"):
        parts.append("encrypted")
    if "credentials" in node:
        number = node["credentials"]
        parts.append(_OPEN if number is None else f"{number} credentials")
    if node.get("mirror"):
        parts.append(f"a mirror of site {node['mirror']}, which takes no lines")
    if node.get("frozen"):
        parts.append(f"FROZEN: {node['frozen']}")
    return ", ".join(parts)


def _stream(stream: StreamStatus) -> Iterator[tuple[str, str]]:
    limit = "" if stream.max_bytes is None else f" of {format_size(stream.max_bytes)}"
    yield (
        "stream",
        f"{stream.name}: {stream.messages} messages, {format_size(stream.bytes)}{limit}",
    )
    if stream.messages:
        yield "first", f"{stream.first_sequence} at {_short_time(stream.first_time)}"
        yield "last", f"{stream.last_sequence} at {_short_time(stream.last_time)}"
    if _is_clustered(stream):
        yield "cluster", f"{stream.cluster or 'no name'}: {_replicas(stream)}"
    for site in stream.sites:
        yield "site", _site(site)


def _is_clustered(stream: StreamStatus) -> bool:
    # a server on its own that has to do with other sites says its own name for that of a cluster
    is_alone = [replica.name for replica in stream.replicas] == [stream.cluster]
    return stream.wanted_replicas > 1 or (bool(stream.cluster) and not is_alone)


def _replicas(stream: StreamStatus) -> str:
    if not stream.has_leader:
        return "the stream has NO LEADER"
    return ", ".join(map(_replica, stream.replicas))


def _replica(replica: Replica) -> str:
    if replica.leader:
        return f"{replica.name} leads"
    if replica.offline:
        return f"{replica.name} OFFLINE since {short_duration(replica.seen_seconds)}"
    return f"{replica.name} {'is current' if replica.current else f'is {replica.lag} behind'}"


def _site(site: Site) -> str:
    seen = site.seen_seconds
    contact = "no contact yet" if seen is None else f"seen {short_duration(seen)} ago"
    return f"{site.name or 'this one'}: {site.behind} behind, {contact}"


def partition_rows(status: Status) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells for each partition, as `PARTITION_HEAD` names them."""
    return map(_row, status.partitions)


def _row(one: PartitionStatus) -> tuple[str, ...]:
    return (
        f"p{one.partition}",
        _cell(one.next),
        _cell(one.behind),
        "-" if not one.behind_seconds else short_duration(one.behind_seconds),
        _cell(one.epoch),
        _short_time(one.committed_at),
        "UNREADABLE" if one.error else one.owner or "nobody yet",
    )


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _short_time(time: str | None) -> str:
    return "-" if time is None else time[:19] + "Z"
