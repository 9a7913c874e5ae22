"""The status document of a broker, and its table; JSON, checks and metrics are made of it as well. Values only.

Sizes are in bytes, times are RFC 3339, None is what is not known or has no limit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, computed_field

from broker.inspect.message import StoredMessage
from broker.report import NodeReport
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND, format_time
from nats_logship.app.units import format_duration, format_size
from nats_logship.wire.pause import Pause

PARTITION_HEAD = ("partition", "next", "behind", "oldest", "epoch", "committed", "owner")
HOST_HEAD = ("host", "part", "messages", "last seen", "silent", "last file")
_OUT_OF_CONTACT = 15.0  # seconds; nats-server itself asks a site again after 10 s without a word

Limit = Annotated[int | None, BeforeValidator(lambda told: told if told >= 0 else None)]
Age = Annotated[float | None, BeforeValidator(lambda told: told / SECOND or None)]
Count = Annotated[int, BeforeValidator(lambda told: len(told or ()))]


class StreamPeer(BaseModel, frozen=True):
    """A server that follows the leader of a stream.

    `lag` counts operations; `active` nanoseconds since the last contact, below 0 before the first.
    """

    name: str
    current: bool = True
    offline: bool = False
    lag: int = 0
    active: int = 0

    @property
    def seen(self) -> str:
        """When it was last heard of."""
        return f"seen {short_duration(self.active / SECOND)} ago" if self.active >= 0 else "unseen"


class SiteStatus(BaseModel, frozen=True):
    """What a stream copies from another site.

    `lag` messages were not copied yet at the last contact, `contact_seconds` ago, None before the
    first one since the server started. `error` is what the other site answered.
    """

    name: str
    lag: int = 0
    contact_seconds: float | None = None
    error: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def behind(self) -> int | None:
        """Messages that are not copied yet; None while nothing is heard of the site.

        A site that is connected says each second how far its stream is.
        """
        is_known = self.contact_seconds is not None and self.contact_seconds < _OUT_OF_CONTACT
        return self.lag if is_known else None

    def text(self, now: str) -> str:
        """Return how far the copy is, for a person; `now` is the broker's clock."""
        why = f" ({self.error})" if self.error else ""
        if self.contact_seconds is None:
            return f"unknown, no contact since this broker started{why}"
        if self.behind is None:
            since = datetime.fromisoformat(now) - timedelta(seconds=self.contact_seconds)
            return f"unknown since {since:%Y-%m-%dT%H:%M:%SZ}, was {self.lag} behind{why}"
        return f"{self.lag} behind"


def _info(*path: str, default: Any = ...) -> Any:
    return Field(default, validation_alias=AliasPath(*path))


class StreamStatus(BaseModel, frozen=True):
    """A stream, out of the server's `STREAM.INFO`; `lost_messages` are those that the server found damaged."""

    name: str = _info("config", "name")
    created: str = _info("created", default="")
    messages: int = _info("state", "messages")
    bytes: int = _info("state", "bytes")
    last_sequence: int = _info("state", "last_seq")
    first_time: str = _info("state", "first_ts")
    max_bytes: Limit = _info("config", "max_bytes", default=None)
    max_age_seconds: Age = _info("config", "max_age", default=None)
    lost_messages: Count = _info("state", "lost", "msgs", default=0)
    wanted_replicas: int = _info("config", "num_replicas", default=1)
    leader: str = _info("cluster", "leader", default="")
    followers: tuple[StreamPeer, ...] = _info("cluster", "replicas", default=())
    sites: tuple[SiteStatus, ...] = ()

    @property
    def current_replicas(self) -> int:
        """How many servers hold all of it."""
        good = sum(one.current and not one.offline for one in self.followers)
        return good + bool(self.leader)


class PartitionStatus(BaseModel, frozen=True):
    """A partition: its consumer, and the committed offset of its receiver.

    `behind` is how many messages its receiver has not committed, `behind_seconds` the age of the oldest of them; None
    where no consumer answers. What belongs to the offset is None while no receiver ever claimed the partition, and where
    the offset cannot be read, for which `error` is the reason. Its owner can be asked at `presence`, has `released` it, or had it
    `moved` by a person. `changed_at` is when the offset was last written. `receiver` is what the
    owner answers, with `running`: False where there is none, None where that is not known, and
    then `missing_seconds`, for how long there may be none. Empty where nobody was asked.
    """

    partition: int
    stream: str
    behind: int | None = None
    behind_seconds: float | None = None
    next: int | None = None
    epoch: int | None = None
    owner: str | None = None
    committed_at: Annotated[str | None, BeforeValidator(lambda told: told or None)] = None
    lines: int | None = None
    bytes: int | None = _info("size", default=None)
    presence: str = ""
    released: bool = False
    moved: bool = False
    error: str | None = None
    changed_at: str | None = None
    receiver: Mapping[str, Any] = {}

    @property
    def missing_seconds(self) -> float:
        """For how long no receiver has had it; 0 where one has it, or where that is not known."""
        return float(self.receiver.get("missing_seconds") or 0.0)


class BrokerStatus(BaseModel, frozen=True):
    """A broker at one moment; `now` is its clock, `answer_seconds` how long an answer took.

    `store_limit` is the most that this user's account may store. Hosts are spread over the first `current_partitions` of
    `partitions`, 0 where the broker does not say; the others had hosts before. `hosts` counts hosts with messages, None where
    they were not counted. `nodes` are the reports of each server's logbroker, none of a bare nats-server. `paused_hosts` counts
    hosts that are paused, by partition.
    """

    server: str
    version: str
    now: str
    answer_seconds: float
    store_used: int
    store_limit: Limit
    current_partitions: int
    streams: tuple[StreamStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    hosts: int | None = None
    nodes: tuple[NodeReport, ...] = ()
    pauses: tuple[Pause, ...] = ()
    paused_hosts: Mapping[int, int] = {}

    @property
    def messages(self) -> int:
        """Messages of all streams."""
        return sum(stream.messages for stream in self.streams)

    @property
    def behind(self) -> int:
        """Messages that their receivers have not committed."""
        return sum(one.behind or 0 for one in self.partitions)

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        totals = {"messages": self.messages, "behind": self.behind}
        return {**totals, **self.model_dump(mode="json")}


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
        yield from _stream(stream, status.now)
    yield "store", _used(status.store_used, status.store_limit)
    current, existing = status.current_partitions, len(status.partitions)
    spread = (
        f", over {current} of {format_count(existing, 'partition')}"
        if 0 < current < existing
        else ""
    )
    yield "hosts", f"{status.hosts or 0}{spread}"
    for pause in status.pauses:
        yield "pause", f"{pause.hosts}: {pause}"


def _used(size: int, limit: int | None) -> str:
    return format_size(size) + ("" if limit is None else f" of {format_size(limit)}")


def _node(node: NodeReport) -> str:
    parts = (
        f"{node.name}, nats-server {node.version}, {format_size(node.free)} of its disk free",
        "encrypted" if node.encrypted else "",
        "OPEN: no credentials"
        if node.credentials is None
        else format_count(node.credentials, "credential"),
        f"a mirror of site {node.mirror}, which takes no lines" if node.mirror else "",
        f"FROZEN: {node.frozen}" if node.frozen else "",
        links(node),
    )
    return ", ".join(filter(None, parts))


def links(node: NodeReport) -> str:
    """Return to how many of its remote sites a server is connected; empty where it has none."""
    if not node.site_remotes:
        return ""
    found = "unknown how many" if node.site_links is None else str(node.site_links)
    return f"connected to {found} of {node.site_remotes} other sites"


def _stream(stream: StreamStatus, now: str) -> Iterator[tuple[str, str]]:
    used = _used(stream.bytes, stream.max_bytes)
    since = f", since {_short_time(stream.first_time)}" if stream.messages else ""
    yield "stream", f"{stream.name}: {format_count(stream.messages, 'message')}, {used}{since}"
    if stream.wanted_replicas > 1 or not stream.leader:
        leader = f"{stream.leader} leads" if stream.leader else "NO LEADER"
        yield "cluster", ", ".join([leader, *(one.name for one in stream.followers)])
    for site in stream.sites:
        yield "site", f"{site.name}: {site.text(now)}"


def partition_row(one: PartitionStatus) -> tuple[str, ...]:
    """Return the cells of a partition, as `PARTITION_HEAD` names them."""
    return (
        f"p{one.partition}",
        *("-" if value is None else str(value) for value in (one.next, one.behind)),
        short_duration(one.behind_seconds) if one.behind_seconds else "-",
        "-" if one.epoch is None else str(one.epoch),
        _short_time(one.committed_at) if one.committed_at else "-",
        "UNREADABLE" if one.error else _owner(one),
    )


def _owner(one: PartitionStatus) -> str:
    if not one.missing_seconds or one.owner is None:
        return one.owner or "nobody yet"
    return f"{one.owner} (gone)" if not one.released else f"nobody since {one.owner}"


def _short_time(time: str) -> str:
    return time[:19] + "Z"


@dataclass(slots=True)
class HostStatus:
    """What the streams hold of a host; `last_seen` is in nanoseconds since the epoch.

    `agent` and `file` are those of the last message; empty for another client's, `file` also for a claim.
    `behind_seconds` is 0 where a receiver has committed its last message, else how long the oldest message of the partition
    waits: the host's own are no older. None where that is not known.
    `paused` says until when an operator has paused the host, by whom and why. `files` is how many its shipper follows, or has
    positions of, and `version` its shipper's, by its snapshot; None and empty where they are not known.
    """

    host: str
    partitions: tuple[int, ...] = ()
    messages: int = 0
    last_seen: int = 0
    silent_seconds: float = 0.0
    behind_seconds: float | None = 0.0
    agent: str = ""
    file: str = ""
    paused: str | None = None
    files: int | None = None
    version: str = ""

    def add(self, last: StoredMessage, partition: PartitionStatus | None, messages: int) -> None:
        """Take note of the last message of a subject of the host, which has so many messages."""
        if last.subject is not None:
            self.partitions = tuple(sorted({*self.partitions, last.subject.partition}))
        if partition is None or partition.behind_seconds is None:
            self.behind_seconds = None
        elif last.sequence >= (partition.next or 0) and self.behind_seconds is not None:
            self.behind_seconds = max(self.behind_seconds, partition.behind_seconds)
        self.messages += messages
        if last.stored_at >= self.last_seen:
            self.last_seen = last.stored_at
            origin = None if last.trouble else last.origin
            self.agent = origin.agent if origin else ""
            self.file = origin.sections[-1].path if origin and origin.sections else ""

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"last_seen": format_time(self.last_seen)}

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table, as `HOST_HEAD` names them."""
        return (
            self.host,
            ",".join(f"p{number}" for number in self.partitions),
            str(self.messages),
            f"{format_time(self.last_seen)[:19]}Z",
            short_duration(self.silent_seconds) + (", paused" if self.paused else ""),
            self.file or ("(no lines since it started)" if self.agent else "-"),
        )
