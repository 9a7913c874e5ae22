"""The status document of a broker, and its text: facts, and a table of its partitions.

`status`, `check`, `top`, metrics and the console are made of it. No I/O. Sizes are in bytes,
times are RFC 3339; None means unknown, or no limit.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, computed_field

from broker.report import NodeReport
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND, shorten_time
from nats_logship.app.units import format_rounded, format_size
from nats_logship.client.table_status import TableStatus
from nats_logship.wire.pause import Pause

_OUT_OF_CONTACT = 15.0  # seconds; nats-server itself asks a silent site again after 10 s

Limit = Annotated[int | None, BeforeValidator(lambda value: value if value >= 0 else None)]
Age = Annotated[float | None, BeforeValidator(lambda value: value / SECOND or None)]
Count = Annotated[int, BeforeValidator(lambda values: len(values or ()))]


def _info(*path: str, default: Any = ...) -> Any:
    return Field(default, validation_alias=AliasPath(*path))


class StreamPeer(BaseModel, frozen=True):
    """A server that follows the leader of a stream.

    `lag` counts operations. `active` is in nanoseconds since the last contact, below 0 before the
    first one.
    """

    name: str
    current: bool = True
    offline: bool = False
    lag: int = 0
    active: int = 0

    @property
    def last_contact(self) -> str:
        """When the leader last had contact with it."""
        if self.active < 0:
            return "not seen yet"
        return f"seen {format_rounded(self.active / SECOND)} ago"


class SiteStatus(BaseModel, frozen=True):
    """The copy that a stream holds of another site's lines.

    `lag` is how many messages were not copied at the last contact, `contact_seconds` ago; None
    before the first contact since the server started. `error` is the other site's answer.
    """

    name: str
    lag: int = 0
    contact_seconds: float | None = None
    error: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def behind(self) -> int | None:
        """Messages that are not copied yet; None while there is no contact with the site.

        A connected site reports the end of its stream each second.
        """
        return self.lag if self.contact_age < _OUT_OF_CONTACT else None

    @property
    def contact_age(self) -> float:
        """Seconds since the last contact; infinite before the first one."""
        return math.inf if self.contact_seconds is None else self.contact_seconds

    def text(self, now: str) -> str:
        """Return how far the copy is, for a person; `now` is the broker's clock."""
        why = f" ({self.error})" if self.error else ""
        if self.contact_seconds is None:
            return f"unknown, no contact since this broker started{why}"
        if self.behind is None:
            since = datetime.fromisoformat(now) - timedelta(seconds=self.contact_seconds)
            return f"unknown since {since:%Y-%m-%dT%H:%M:%SZ}, was {self.lag} behind{why}"
        return f"{self.lag} behind"


class StreamStatus(BaseModel, frozen=True):
    """A stream, from STREAM.INFO; `lost_messages` counts those that the server found damaged."""

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
    is_mirror: bool = False

    @property
    def current_replicas(self) -> int:
        """The number of servers that hold all of it."""
        good = sum(one.current and not one.offline for one in self.followers)
        return good + bool(self.leader)


class PartitionStatus(BaseModel, frozen=True):
    """A partition: its consumer, the committed offset, and its receiver.

    `behind` is how many messages its receiver has not committed, `behind_seconds` the age of the
    oldest of them; None if no consumer answers. The fields of the offset are None while no receiver
    has claimed the partition, or if the offset is unreadable, with the reason in `error`. The owner
    answers at `presence`. `released`: the owner gave the partition up; `moved`: a person set the
    offset. `changed_at` is when the offset was last written.

    `receiver` is the owner's answer, with `running`: False if there is no receiver, None if that
    is unknown. If False, `missing_seconds` says for how long at most. It is empty if nobody was
    asked.
    """

    partition: int
    stream: str
    behind: int | None = None
    behind_seconds: float | None = None
    offset: int | None = _info("next", default=None)
    epoch: int | None = None
    owner: str | None = None
    committed_at: Annotated[str | None, BeforeValidator(lambda value: value or None)] = None
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
        """For how long it has had no receiver; 0 if it has one, or if that is unknown."""
        return float(self.receiver.get("missing_seconds") or 0.0)


class BrokerStatus(BaseModel, frozen=True):
    """A broker at one moment; `now` is its clock, `answer_seconds` how long an answer took.

    `store_limit` is the most that this user's account may store. Hosts are spread over the first
    `current_partitions` of `partitions`; 0 if the broker does not say. `hosts` counts hosts with
    messages, None if they were not counted. `nodes` are the reports of the logbrokers. A bare
    nats-server sends none. `paused_hosts` counts hosts that are paused, by partition.
    `interval_seconds` is the shortest interval between two rounds that hosts are asked for; 0 if
    they are asked for none. `foreign_messages` counts messages of partitions that this broker does
    not have, by partition: a copied site may have more.
    """

    server: str
    version: str
    now: str
    answer_seconds: float
    store_used: int
    store_limit: Limit
    current_partitions: int
    interval_seconds: float = 0.0
    streams: tuple[StreamStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    tables: tuple[TableStatus, ...] = ()
    hosts: int | None = None
    nodes: tuple[NodeReport, ...] = ()
    pauses: tuple[Pause, ...] = ()
    paused_hosts: Mapping[int, int] = {}
    foreign_messages: Mapping[int, int] = {}

    @property
    def messages(self) -> int:
        """Messages of all streams."""
        return sum(stream.messages for stream in self.streams)

    @property
    def behind(self) -> int:
        """Messages that their receivers have not committed."""
        return sum(one.behind or 0 for one in self.partitions)

    @property
    def rounds_per_second(self) -> float | None:
        """The rounds of all hosts, as logbroker measured them; None if none did."""
        found = (one.rounds_per_second for one in self.nodes)
        return max((rate for rate in found if rate is not None), default=None)

    @property
    def interval_text(self) -> str:
        """The interval that hosts are asked for; empty if they are asked for none."""
        if not self.interval_seconds:
            return ""
        return f"at least {self.interval_seconds:g} s between two rounds of a host"

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        totals = {name: getattr(self, name) for name in ("messages", "behind", "rounds_per_second")}
        return {**totals, **self.model_dump(mode="json")}


PARTITION_HEAD = ("partition", "offset", "behind", "oldest", "epoch", "committed", "owner")


def describe(status: BrokerStatus) -> Iterator[tuple[str, str]]:
    """Yield the facts above the table of partitions: name and text."""
    yield "server", f"{status.server}, nats-server {status.version}"
    for node in status.nodes:
        yield "node", _describe_node(node)
    if not status.nodes:
        yield "node", "no report: the server is not a logbroker, or this user may not ask it"
    for stream in status.streams:
        yield from _describe_stream(stream, status.now)
    yield "store", _format_use(status.store_used, status.store_limit)
    current, existing = status.current_partitions, len(status.partitions)
    spread = (
        f", over {current} of {format_count(existing, 'partition')}"
        if 0 < current < existing
        else ""
    )
    yield "hosts", f"{status.hosts or 0}{spread}"
    if (rate := status.rounds_per_second) is not None or status.interval_seconds:
        measured = "" if rate is None else f"{rate:.0f} a second"
        yield "rounds", ", ".join(filter(None, (measured, status.interval_text)))
    for one in status.tables:
        yield "table", one.text()
    for pause in status.pauses:
        yield "pause", f"{pause.hosts}: {pause}"


def _format_use(size: int, limit: int | None) -> str:
    return format_size(size) + ("" if limit is None else f" of {format_size(limit)}")


def _describe_node(node: NodeReport) -> str:
    parts = (
        f"{node.name}, nats-server {node.version}, {format_size(node.free)} of its disk free",
        "encrypted" if node.encrypted else "",
        "OPEN: no credentials"
        if node.credentials is None
        else format_count(node.credentials, "credential"),
        f"a mirror of site {node.mirror}, which takes no lines" if node.mirror else "",
        f"FROZEN: {node.frozen}" if node.frozen else "",
        describe_links(node),
    )
    return ", ".join(filter(None, parts))


def describe_links(node: NodeReport) -> str:
    """Return how many of its remote sites a server is connected to; empty if it has none."""
    if not node.site_remotes:
        return ""
    found = "an unknown number" if node.site_links is None else str(node.site_links)
    return f"connected to {found} of {node.site_remotes} other sites"


def _describe_stream(stream: StreamStatus, now: str) -> Iterator[tuple[str, str]]:
    used = _format_use(stream.bytes, stream.max_bytes)
    since = f", since {shorten_time(stream.first_time)}" if stream.messages else ""
    yield "stream", f"{stream.name}: {format_count(stream.messages, 'message')}, {used}{since}"
    if stream.wanted_replicas > 1 or not stream.leader:
        leader = f"{stream.leader} leads" if stream.leader else "NO LEADER"
        yield "cluster", ", ".join([leader, *(one.name for one in stream.followers)])
    for site in stream.sites:
        yield "site", f"{site.name}: {site.text(now)}"


def format_partition(one: PartitionStatus) -> tuple[str, ...]:
    """Return the cells of a partition, as `PARTITION_HEAD` names them."""
    return (
        f"p{one.partition}",
        *("-" if value is None else str(value) for value in (one.offset, one.behind)),
        format_rounded(one.behind_seconds) if one.behind_seconds else "-",
        "-" if one.epoch is None else str(one.epoch),
        shorten_time(one.committed_at) if one.committed_at else "-",
        "UNREADABLE" if one.error else _format_owner(one),
    )


def _format_owner(one: PartitionStatus) -> str:
    if not one.missing_seconds or one.owner is None:
        return one.owner or "nobody yet"
    return f"{one.owner} (gone)" if not one.released else f"nobody, last {one.owner}"
