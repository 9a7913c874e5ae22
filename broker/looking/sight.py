"""The broker as it was seen at one moment, as values: stream, replicas, partitions, nodes. Reads answers; asks nobody."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from broker.looking.message import nanoseconds
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.pause import Pause
from broker.wire.streams import STREAM
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject, consumer_name

__all__ = [
    "Inflow",
    "PartitionStatus",
    "Replica",
    "Status",
    "Strays",
    "hosts_of",
    "inflows_of",
    "replicas_of",
    "strays_of",
]

_NO_TIME = "0001-01-01T00:00:00Z"
_NAMED = 20  # subjects that are told by name; the others are counted
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition: its consumer, and the committed offset of its receiver.

    `error` says why the offset cannot be read, None where it can or there is none.
    `pending` is how many messages its receiver has not committed, `ack_floor` the last sequence that it has, and
    `oldest_pending` when the first of those that wait was stored (RFC 3339). What follows is None while no receiver ever
    claimed the partition; `next` is the sequence that it will read next, `lines` and `bytes` are its totals.
    """

    partition: int
    consumer: str
    ack_floor: int | None
    pending: int | None
    next: int | None = None
    epoch: int | None = None
    owner: str | None = None
    committed_at: str | None = None
    oldest_pending: str | None = None
    lines: int | None = None
    bytes: int | None = None
    error: str | None = None

    @classmethod
    def of(
        cls,
        number: int,
        consumer: Mapping[str, Any] | None,
        offset: Offset | UnreadableOffset | None,
    ) -> "PartitionStatus":
        """Return a partition as its consumer and its offset tell it."""
        error = str(offset) if isinstance(offset, UnreadableOffset) else None
        offset = None if isinstance(offset, UnreadableOffset) else offset
        return cls(
            partition=number,
            consumer=consumer_name(number),
            ack_floor=consumer["ack_floor"]["stream_seq"] if consumer else None,
            pending=consumer["num_pending"] + consumer["num_ack_pending"] if consumer else None,
            next=offset.next if offset else None,
            epoch=offset.epoch if offset else None,
            owner=offset.owner if offset else None,
            committed_at=offset.committed_at or None if offset else None,
            lines=offset.lines if offset else None,
            bytes=offset.size if offset else None,
            error=error,
        )

    @property
    def first_pending(self) -> int | None:
        """The sequence at or behind which the first message that waits is found; None where none waits."""
        if not self.pending:
            return None
        return self.next if self.next is not None else (self.ack_floor or 0) + 1

    def age(self, now: str) -> float | None:
        """Return for how many seconds the oldest message has waited at `now` (RFC 3339); None where none waits."""
        if self.oldest_pending is None:
            return None
        return max(0.0, (nanoseconds(now) - nanoseconds(self.oldest_pending)) / _SECOND)


@dataclass(frozen=True, slots=True)
class Replica:
    """A server that holds the stream; `lag` counts operations, `seen_seconds` is since the leader last heard of it."""

    name: str
    leader: bool
    current: bool
    offline: bool
    lag: int
    seen_seconds: float


@dataclass(frozen=True, slots=True)
class Inflow:
    """Another site whose lines are copied here; `lag` messages were missing when it was heard, None: never."""

    site: str
    lag: int
    seen_seconds: float | None


@dataclass(frozen=True, slots=True)
class Strays:
    """Messages on subjects that no receiver reads; `subjects` are at most 20 of `subject_count`."""

    messages: int
    subject_count: int
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The broker; sizes in bytes, times in RFC 3339, None where there is nothing yet.

    `store_limit` is the most that this user's account may store, `max_bytes` the most that the stream may hold; None
    for no limit of its own. `max_age` is in seconds. `lost_messages` are those that the server found damaged. `nodes` are
    the reports of the logbroker of each server, none where a nats-server runs without one. `now` is the broker's clock.
    `hosts` is how many have messages in the stream, whatever their partitions; None where nobody counted. Hosts are
    spread over the first `current_partitions` of `partitions`, 0 where nobody says; the others had hosts before.
    """

    server: str
    version: str
    stream: str
    created: str
    messages: int
    bytes: int
    first_sequence: int
    last_sequence: int
    first_time: str | None
    last_time: str | None
    max_bytes: int | None
    store_used: int
    store_limit: int | None
    current_partitions: int
    partitions: tuple[PartitionStatus, ...]
    hosts: int | None = None
    now: str = ""
    max_age: float | None = None
    max_messages: int | None = None
    lost_messages: int = 0
    cluster: str | None = None
    wanted_replicas: int = 1
    replicas: tuple[Replica, ...] = ()
    strays: Strays | None = None
    nodes: tuple[Mapping[str, Any], ...] = field(default=())
    inflows: tuple[Inflow, ...] = ()
    pauses: tuple[Pause, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values; the keys are the field names, and stay."""
        return asdict(self) | {"pauses": [one.model_dump(mode="json") for one in self.pauses]}

    @classmethod
    def of(
        cls,
        reached: tuple[str, str],
        info: Mapping[str, Any],
        account: Mapping[str, Any],
        current: int,
        partitions: tuple[PartitionStatus, ...],
    ) -> "Status":
        """Return what the server's answers say; `reached` is its address and its version."""
        state, config = info["state"], info["config"]
        age = config.get("max_age", 0)
        return cls(
            server=reached[0],
            version=reached[1],
            stream=STREAM,
            created=info["created"],
            messages=state["messages"],
            bytes=state["bytes"],
            first_sequence=state["first_seq"],
            last_sequence=state["last_seq"],
            first_time=_time(state["first_ts"]) if state["messages"] else None,
            last_time=_time(state["last_ts"]),
            max_bytes=_limit(config.get("max_bytes", -1)),
            store_used=account.get("storage", 0),
            store_limit=_limit(account.get("limits", {}).get("max_storage", -1)),
            current_partitions=current,
            partitions=partitions,
            now=info.get("ts", ""),
            max_age=age / _SECOND if age else None,
            max_messages=_limit(config.get("max_msgs", -1)),
            lost_messages=len((state.get("lost") or {}).get("msgs") or ()),
            cluster=(info.get("cluster") or {}).get("name"),
            wanted_replicas=config.get("num_replicas", 1),
            replicas=replicas_of(info.get("cluster")),
            inflows=inflows_of(info),
        )


def _time(text: str) -> str | None:
    return None if text == _NO_TIME else text


def _limit(number: int) -> int | None:
    return number if number >= 0 else None


def replicas_of(cluster: Mapping[str, Any] | None) -> tuple[Replica, ...]:
    """Return the servers that hold a stream, its leader first; none where it has no leader."""
    if not cluster:
        return ()
    leader = cluster.get("leader")
    others = cluster.get("replicas") or ()
    return (
        *([Replica(leader, True, True, False, 0, 0.0)] if leader else []),
        *(
            Replica(
                name=peer.get("name", ""),
                leader=False,
                current=bool(peer.get("current")),
                offline=bool(peer.get("offline")),
                lag=peer.get("lag", 0),
                seen_seconds=peer.get("active", 0) / _SECOND,
            )
            for peer in sorted(others, key=lambda peer: str(peer.get("name", "")))
        ),
    )


def inflows_of(info: Mapping[str, Any]) -> tuple[Inflow, ...]:
    """Return the sites that a stream is a copy of, or takes lines of."""
    copied = [*([info["mirror"]] if info.get("mirror") else []), *(info.get("sources") or ())]
    return tuple(
        Inflow(
            (one.get("external") or {}).get("api", "").removeprefix("$JS.").removesuffix(".API"),
            one.get("lag", 0),
            one["active"] / _SECOND if one.get("active", -1) >= 0 else None,
        )
        for one in copied
    )


def strays_of(subjects: Mapping[str, int], partitions: int) -> Strays:
    """Return what stands on subjects outside of the partitions, or of no host; `subjects` is how many messages each has."""
    found = sorted(name for name in subjects if not _is_read(name, partitions))
    return Strays(sum(subjects[name] for name in found), len(found), tuple(found[:_NAMED]))


def hosts_of(subjects: Iterable[str]) -> int:
    """Return how many hosts these subjects are of; some are of none, and a host may have several."""
    return len({host for subject in subjects if (host := _host(subject)) is not None})


def _host(subject: str) -> str | None:
    try:
        return Subject.parse(subject).host
    except (InvalidSubject, InvalidHost):
        return None


def _is_read(subject: str, partitions: int) -> bool:
    try:
        return Subject.parse(subject).partition < partitions
    except (InvalidSubject, InvalidHost):
        return False
