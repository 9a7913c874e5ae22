"""The status document of a broker, and its table; JSON, checks and metrics are made of it as well. Values only.

Sizes are in bytes, times are RFC 3339, None is what is not known or has no limit.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from broker.app.units import format_duration, format_size
from broker.inspect.message import nanoseconds, subject_of
from broker.report import NodeReport
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
    "partition_row",
    "short_duration",
    "unread_in",
]

PARTITION_HEAD = ("partition", "next", "behind", "oldest", "epoch", "committed", "owner")
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
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    first_time: str | None
    max_bytes: int | None
    max_messages: int | None
    max_age_seconds: float | None
    lost_messages: int
    wanted_replicas: int
    current_replicas: int
    replicas: tuple[Replica, ...]
    sites: tuple[CopiedSite, ...]

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "StreamStatus":
        """Read the server's `STREAM.INFO`."""
        state, config = info["state"], info["config"]
        replicas = tuple(_replicas(info.get("cluster") or {}))
        return cls(
            name=config["name"],
            messages=state["messages"],
            bytes=state["bytes"],
            first_sequence=state["first_seq"],
            last_sequence=state["last_seq"],
            first_time=state["first_ts"] if state["messages"] else None,
            max_bytes=_limit(config.get("max_bytes", -1)),
            max_messages=_limit(config.get("max_msgs", -1)),
            max_age_seconds=config.get("max_age", 0) / _SECOND or None,
            lost_messages=len((state.get("lost") or {}).get("msgs") or ()),
            wanted_replicas=config.get("num_replicas", 1),
            current_replicas=sum(one.current and not one.offline for one in replicas),
            replicas=replicas,
            sites=tuple(
                map(_site, filter(None, [info.get("mirror"), *(info.get("sources") or ())]))
            ),
        )

    @property
    def has_leader(self) -> bool:
        """Whether the stream takes messages."""
        return any(replica.leader for replica in self.replicas)


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


def _site(copied: Mapping[str, Any]) -> CopiedSite:
    api = (copied.get("external") or {}).get("api", "")
    active = copied.get("active", -1)
    name = api.removeprefix("$JS.").removesuffix(".API")
    return CopiedSite(name, copied.get("lag", 0), active / _SECOND if active >= 0 else None)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition: its consumer, and the committed offset of its receiver.

    `behind` is how many messages its receiver has not committed, `behind_seconds` the age of the oldest of them; None
    where no consumer answers. What belongs to the offset is None while no receiver ever claimed the partition, and where
    the offset cannot be read, for which `error` is the reason. The oldest of them is at `first_behind` or after it.
    """

    partition: int
    stream: str
    behind: int | None = None
    behind_seconds: float | None = None
    first_behind: int | None = None
    next: int | None = None
    epoch: int | None = None
    owner: str | None = None
    committed_at: str | None = None
    lines: int | None = None
    bytes: int | None = None
    error: str | None = None

    @classmethod
    def of(
        cls,
        partition: int,
        stream: str,
        consumer: Mapping[str, Any] | None,
        offset: Offset | UnreadableOffset | None,
    ) -> "PartitionStatus":
        """Read a partition's consumer and its offset; the age of its messages is another question."""
        known: dict[str, Any] = {}
        if consumer:
            known["behind"] = consumer["num_pending"] + consumer["num_ack_pending"]
        if consumer and known["behind"]:
            known["first_behind"] = consumer["ack_floor"]["stream_seq"] + 1
        if isinstance(offset, UnreadableOffset):
            known["error"] = str(offset)
        elif offset:
            known |= {"next": offset.next, "epoch": offset.epoch, "owner": offset.owner}
            known |= {"lines": offset.lines, "bytes": offset.size}
            known["committed_at"] = offset.committed_at or None
            if known.get("behind"):
                known["first_behind"] = offset.next
        return cls(partition, stream, **known)


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
    nodes: tuple[NodeReport, ...] = ()
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
        models = {"nodes": self.nodes, "pauses": self.pauses}
        plain = {name: [one.model_dump(mode="json") for one in of] for name, of in models.items()}
        return {**totals, **asdict(self), **plain}


def unread_in(subjects: Mapping[str, int], partitions: int) -> Unread:
    """Return what is on subjects of no partition or of no host; `subjects` is how many messages each has."""
    parsed = {name: subject_of(name) for name in subjects}
    found = sorted(n for n, known in parsed.items() if not known or known.partition >= partitions)
    return Unread(sum(subjects[name] for name in found), len(found), tuple(found[:_NAMED]))


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
    yield "store", _used(status.store_used, status.store_limit)
    current, existing = status.current_partitions, len(status.partitions)
    spread = f", over {current} of {existing} partitions" if 0 < current < existing else ""
    yield "hosts", f"{status.hosts or 0}{spread}"
    for pause in status.pauses:
        yield "pause", f"{pause.hosts}: {pause}"


def _used(size: int, limit: int | None) -> str:
    return format_size(size) + ("" if limit is None else f" of {format_size(limit)}")


def _node(node: NodeReport) -> str:
    parts = (
        f"{node.name}, nats-server {node.version}, {format_size(node.free)} of its disk free",
        "encrypted" if node.encrypted else "",
        "OPEN: no credentials" if node.credentials is None else f"{node.credentials} credentials",
        f"a mirror of site {node.mirror}, which takes no lines" if node.mirror else "",
        f"FROZEN: {node.frozen}" if node.frozen else "",
    )
    return ", ".join(filter(None, parts))


def _stream(stream: StreamStatus) -> Iterator[tuple[str, str]]:
    used = _used(stream.bytes, stream.max_bytes)
    since = f", since {_short_time(stream.first_time)}" if stream.first_time else ""
    yield "stream", f"{stream.name}: {stream.messages} messages, {used}{since}"
    if stream.wanted_replicas > 1 or not stream.has_leader:
        leads = "" if stream.has_leader else "NO LEADER, "
        yield "cluster", leads + ", ".join(map(_replica, stream.replicas))
    for site in stream.sites:
        seen = site.seen_seconds
        contact = "no contact yet" if seen is None else f"seen {short_duration(seen)} ago"
        yield "site", f"{site.name or 'this one'}: {site.behind} behind, {contact}"


def _replica(replica: Replica) -> str:
    if replica.leader:
        return f"{replica.name} leads"
    if replica.offline:
        return f"{replica.name} OFFLINE since {short_duration(replica.seen_seconds)}"
    return f"{replica.name} {'is current' if replica.current else f'is {replica.lag} behind'}"


def partition_row(one: PartitionStatus) -> tuple[str, ...]:
    """Return the cells of a partition, as `PARTITION_HEAD` names them."""
    return (
        f"p{one.partition}",
        *("-" if value is None else str(value) for value in (one.next, one.behind)),
        "-" if not one.behind_seconds else short_duration(one.behind_seconds),
        "-" if one.epoch is None else str(one.epoch),
        _short_time(one.committed_at),
        "UNREADABLE" if one.error else one.owner or "nobody yet",
    )


def _short_time(time: str | None) -> str:
    return "-" if time is None else time[:19] + "Z"
