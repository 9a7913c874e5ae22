"""The status document as text: facts about the broker, and a table of its partitions."""

from collections.abc import Iterator

from broker.inspect.status import BrokerStatus, PartitionStatus, StreamStatus, format_rounded
from broker.report import NodeReport
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size

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
    since = f", since {_shorten_time(stream.first_time)}" if stream.messages else ""
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
        *("-" if value is None else str(value) for value in (one.next, one.behind)),
        format_rounded(one.behind_seconds) if one.behind_seconds else "-",
        "-" if one.epoch is None else str(one.epoch),
        _shorten_time(one.committed_at) if one.committed_at else "-",
        "UNREADABLE" if one.error else _format_owner(one),
    )


def _format_owner(one: PartitionStatus) -> str:
    if not one.missing_seconds or one.owner is None:
        return one.owner or "nobody yet"
    return f"{one.owner} (gone)" if not one.released else f"nobody since {one.owner}"


def _shorten_time(time: str) -> str:
    return time[:19] + "Z"
