"""The status document of a broker, and its table; JSON, checks and metrics are made of it as well. Values only.

Sizes are in bytes, times are RFC 3339, None is what is not known or has no limit.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from broker.app.units import format_duration, format_size
from broker.inspect.message import nanoseconds, subject_of
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.pause import Pause

__all__ = [
    "PARTITION_HEAD",
    "BrokerStatus",
    "CopiedSite",
    "PartitionStatus",
    "Replica",
    "StreamStatus",
    "Unread",
    "facts",
    "hosts_in",
    "partition_rows",
    "short_duration",
    "unread_in",
]

PARTITION_HEAD = ("partition", "next", "behind", "oldest", "epoch", "committed", "owner")
_OPEN = "OPEN: no credentials"
_NO_TIME = "0001-01-01T00:00:00Z"
_NAMED = 20  # subjects; the others are counted
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Replica:
    """A server that holds a stream; `lag` counts operations, `seen_seconds` is since the leader last heard of it."""

    name: str
    leader: bool
    current: bool
    offline: bool
    lag: int
    seen_seconds: float


@dataclass(frozen=True, slots=True)
class CopiedSite:
    """Another site whose stream is copied here; `behind` counts messages, `seen_seconds` is None before the first contact."""

    name: str
    behind: int
    seen_seconds: float | None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream; `lost_messages` are those that the server found damaged."""

    name: str
    created: str
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    first_time: str | None
    last_time: str | None
    max_bytes: int | None
    max_messages: int | None
    max_age_seconds: float | None
    lost_messages: int
    cluster: str | None
    wanted_replicas: int
    current_replicas: int
    replicas: tuple[Replica, ...]
    sites: tuple[CopiedSite, ...]

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "StreamStatus":
        """Read the server's `STREAM.INFO`."""
        state, config, cluster = info["state"], info["config"], info.get("cluster") or {}
        age, replicas = config.get("max_age", 0), tuple(_replicas(cluster))
        return cls(
            name=config["name"],
            created=info["created"],
            messages=state["messages"],
            bytes=state["bytes"],
            first_sequence=state["first_seq"],
            last_sequence=state["last_seq"],
            first_time=_time(state["first_ts"]) if state["messages"] else None,
            last_time=_time(state["last_ts"]),
            max_bytes=_limit(config.get("max_bytes", -1)),
            max_messages=_limit(config.get("max_msgs", -1)),
            max_age_seconds=age / _SECOND if age else None,
            lost_messages=len((state.get("lost") or {}).get("msgs") or ()),
            cluster=cluster.get("name"),
            wanted_replicas=config.get("num_replicas", 1),
            current_replicas=sum(one.current and not one.offline for one in replicas),
            replicas=replicas,
            sites=tuple(_sites(info)),
        )

    @property
    def has_leader(self) -> bool:
        """Whether the stream takes messages."""
        return any(replica.leader for replica in self.replicas)


def _time(text: str) -> str | None:
    return None if text == _NO_TIME else text


def _limit(number: int) -> int | None:
    return number if number >= 0 else None


def _replicas(cluster: Mapping[str, Any]) -> Iterable[Replica]:
    if leader := cluster.get("leader"):
        yield Replica(leader, leader=True, current=True, offline=False, lag=0, seen_seconds=0.0)
    for peer in sorted(cluster.get("replicas") or (), key=lambda peer: str(peer.get("name", ""))):
        yield Replica(
            name=peer.get("name", ""),
            leader=False,
            current=bool(peer.get("current")),
            offline=bool(peer.get("offline")),
            lag=peer.get("lag", 0),
            seen_seconds=peer.get("active", 0) / _SECOND,
        )


def _sites(info: Mapping[str, Any]) -> Iterable[CopiedSite]:
    for copied in (*filter(None, [info.get("mirror")]), *(info.get("sources") or ())):
        api = (copied.get("external") or {}).get("api", "")
        active = copied.get("active", -1)
        yield CopiedSite(
            name=api.removeprefix("$JS.").removesuffix(".API"),
            behind=copied.get("lag", 0),
            seen_seconds=active / _SECOND if active >= 0 else None,
        )


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition: its consumer, and the committed offset of its receiver.

    `behind` is how many messages its receiver has not committed, `behind_seconds` the age of the oldest of them; None
    where no consumer answers. What belongs to the offset is None while no receiver ever claimed the partition, and where
    the offset cannot be read, for which `error` is the reason.
    """

    partition: int
    stream: str
    behind: int | None
    behind_seconds: float | None
    ack_floor: int | None
    next: int | None
    epoch: int | None
    owner: str | None
    committed_at: str | None
    lines: int | None
    bytes: int | None
    error: str | None

    @classmethod
    def of(
        cls,
        partition: int,
        stream: str,
        consumer: Mapping[str, Any] | None,
        offset: Offset | UnreadableOffset | None,
    ) -> "PartitionStatus":
        """Read a partition's consumer and its offset; the age of its messages is another question."""
        known = offset if isinstance(offset, Offset) else None
        return cls(
            partition=partition,
            stream=stream,
            behind=consumer["num_pending"] + consumer["num_ack_pending"] if consumer else None,
            behind_seconds=None,
            ack_floor=consumer["ack_floor"]["stream_seq"] if consumer else None,
            next=known.next if known else None,
            epoch=known.epoch if known else None,
            owner=known.owner if known else None,
            committed_at=known.committed_at or None if known else None,
            lines=known.lines if known else None,
            bytes=known.size if known else None,
            error=str(offset) if isinstance(offset, UnreadableOffset) else None,
        )

    @property
    def first_behind(self) -> int | None:
        """The sequence at or behind which the oldest message is that is not committed; None where there is none."""
        if not self.behind:
            return None
        return self.next if self.next is not None else (self.ack_floor or 0) + 1


@dataclass(frozen=True, slots=True)
class Unread:
    """Messages on subjects that no receiver reads; `subjects` are at most 20 of `subject_count`."""

    messages: int
    subject_count: int
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker at one moment; `now` is its clock.

    `store_limit` is the most that this user's account may store. Hosts are spread over the first `current_partitions` of
    `partitions`, 0 where the broker does not say; the others had hosts before. `hosts` counts hosts with messages, None
    where they were not counted. `nodes` are the reports of each server's logbroker, none of a bare nats-server.
    """

    server: str
    version: str
    now: str
    store_used: int
    store_limit: int | None
    current_partitions: int
    streams: tuple[StreamStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    hosts: int | None = None
    unread: Unread | None = None
    nodes: tuple[Mapping[str, Any], ...] = ()
    pauses: tuple[Pause, ...] = ()

    @property
    def messages(self) -> int:
        """Messages of all streams."""
        return sum(stream.messages for stream in self.streams)

    @property
    def bytes(self) -> int:
        """Bytes of all streams."""
        return sum(stream.bytes for stream in self.streams)

    @property
    def max_bytes(self) -> int | None:
        """The most that all streams may hold; None where one has no limit."""
        limits = [stream.max_bytes for stream in self.streams]
        return None if None in limits else sum(filter(None, limits))

    @property
    def behind(self) -> int:
        """Messages that their receivers have not committed."""
        return sum(one.behind or 0 for one in self.partitions)

    @property
    def nanoseconds(self) -> int:
        """The broker's clock, since the epoch."""
        return nanoseconds(self.now)

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        totals = {"messages": self.messages, "bytes": self.bytes, "behind": self.behind}
        pauses = [one.model_dump(mode="json") for one in self.pauses]
        return {**totals, **asdict(self), "pauses": pauses}


def unread_in(subjects: Mapping[str, int], partitions: int) -> Unread:
    """Return what is on subjects of no partition or of no host; `subjects` is how many messages each has."""
    found = sorted(name for name in subjects if not _is_read(name, partitions))
    return Unread(sum(subjects[name] for name in found), len(found), tuple(found[:_NAMED]))


def _is_read(name: str, partitions: int) -> bool:
    subject = subject_of(name)
    return subject is not None and subject.partition < partitions


def hosts_in(subjects: Iterable[str]) -> int:
    """Return how many hosts these subjects are of; some are of none, and a host may have several."""
    return len({subject.host for subject in map(subject_of, subjects) if subject is not None})


def short_duration(seconds: float) -> str:
    """Write a length of time as people say it: to the second below an hour, then to the minute."""
    whole = int(seconds)
    return format_duration(timedelta(seconds=whole if whole < 3600 else whole // 60 * 60))


def facts(status: BrokerStatus) -> Iterator[tuple[str, str]]:
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
        yield "cluster", f"{stream.cluster or 'no name'}: {_replica_list(stream)}"
    for site in stream.sites:
        yield "site", _site(site)


def _is_clustered(stream: StreamStatus) -> bool:
    # a server on its own that has to do with other sites says its own name for that of a cluster
    is_alone = [replica.name for replica in stream.replicas] == [stream.cluster]
    return stream.wanted_replicas > 1 or (bool(stream.cluster) and not is_alone)


def _replica_list(stream: StreamStatus) -> str:
    if not stream.has_leader:
        return "the stream has NO LEADER"
    return ", ".join(map(_replica, stream.replicas))


def _replica(replica: Replica) -> str:
    if replica.leader:
        return f"{replica.name} leads"
    if replica.offline:
        return f"{replica.name} OFFLINE since {short_duration(replica.seen_seconds)}"
    return f"{replica.name} {'is current' if replica.current else f'is {replica.lag} behind'}"


def _site(site: CopiedSite) -> str:
    seen = site.seen_seconds
    contact = "no contact yet" if seen is None else f"seen {short_duration(seen)} ago"
    return f"{site.name or 'this one'}: {site.behind} behind, {contact}"


def partition_rows(status: BrokerStatus) -> Iterator[tuple[str, ...]]:
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
