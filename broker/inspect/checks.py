"""`logbroker check`: six checks of a broker for monitoring, from its status document. No I/O.

| check | what it covers |
|---|---|
| connection | the broker answers in time |
| stream | leader and replicas of each stream, damage, consumers of the partitions |
| space | how full streams and disk are, failed writes, hosts that wait for space |
| receivers | whether partitions have a receiver, and how long messages have waited for it |
| certificates | how long the brokers' certificates are valid |
| sites | whether copies of other sites, and connections to them, are up |
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from broker.inspect.status import (
    BrokerStatus,
    PartitionStatus,
    StreamStatus,
    describe_links,
)
from broker.report import NodeReport
from nats_logship.app.text import format_count, format_names, printable
from nats_logship.app.units import format_rounded, format_size
from nats_logship.client.table_status import TableStatus

CHECKS = ("connection", "stream", "space", "receivers", "certificates", "sites")
"""The names of all checks, in their order."""

_DAY = 86_400.0
_MOST_NAMED = 5  # partitions in one line
# the values from which on a check is a warning, and critical
_AGE = (600.0, 3600.0)  # seconds that the oldest message has waited for its receiver
_AGE_OF_RUNS = (26 * 3600.0, 7 * _DAY)  # for a table that a daily run writes
_SPACE = (0.75, 0.90)
_ANSWER = (0.5, 1.0)  # seconds
_CERTIFICATE = (-30 * _DAY, -7 * _DAY)  # seconds since its end
_MISSING = 60.0  # seconds without a receiver, from which on that is a warning


class Grade(IntEnum):
    """The result of a check; the value is the exit code of a Nagios plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


Graded = Iterator[tuple[Grade, str]]
_BADNESS = (Grade.OK, Grade.UNKNOWN, Grade.WARNING, Grade.CRITICAL)


class CheckResult(NamedTuple):
    """A grade and its reason, one line."""

    check: str
    grade: Grade
    text: str

    def document(self) -> dict[str, str]:
        """Return plain values for JSON."""
        return {"check": self.check, "status": self.grade.name, "text": self.text}


def judge(
    checks: Iterable[str], status: BrokerStatus | None, trouble: str = ""
) -> list[CheckResult]:
    """Return the results of checks, in their order, at least one for each.

    `trouble` is the reason if there is no status: no broker, no stream, no leader or no majority.
    """
    if status is None:
        broken, rest = dict.fromkeys(("connection", "stream"), Grade.CRITICAL), Grade.UNKNOWN
        return [CheckResult(check, broken.get(check, rest), trouble) for check in checks]
    return [CheckResult(check, *found) for check in checks for found in _CHECK[check](status)]


def _grade(value: float, limits: tuple[float, float]) -> Grade:
    return Grade(sum(value >= limit for limit in limits))


def _check_connection(status: BrokerStatus) -> Graded:
    text = f"{status.server} answered in {status.answer_seconds * 1000:.0f} ms"
    yield _grade(status.answer_seconds, _ANSWER), text


def _check_stream(status: BrokerStatus) -> Graded:
    if not status.current_partitions:
        yield Grade.CRITICAL, "the number of partitions is not set: run `logbroker apply`"
    if without := [f"p{one.partition}" for one in status.partitions if one.behind is None]:
        names = format_names(without, _MOST_NAMED)
        text = f"no consumer answers for {names}: see whether all brokers of the cluster run"
        yield Grade.CRITICAL, text
    for stream in status.streams:
        if lost := stream.lost_messages:
            was = "was damaged and is lost" if lost == 1 else "were damaged and are lost"
            text = f"{format_count(lost, 'message')} of {stream.name} {was}; check the disk"
            yield Grade.CRITICAL, text
        yield from _check_replicas(stream)


def _check_replicas(stream: StreamStatus) -> Graded:
    wanted, good = stream.wanted_replicas, stream.current_replicas
    if not stream.leader:
        text = f"stream {stream.name} has no leader, so it stores nothing; start the other brokers"
        yield Grade.CRITICAL, text
    for one in stream.followers:
        if one.offline:
            yield Grade.WARNING, f"{one.name} is offline, {one.last_contact}; start its broker"
        elif not one.current:
            lag = format_count(one.lag, "operation")
            yield Grade.WARNING, f"{one.name} is {lag} behind, {one.last_contact}"
    grade = Grade.CRITICAL if 2 * good <= wanted else Grade.WARNING
    text = f"{good} of {format_count(wanted, 'server', 'hold')} {stream.name}"
    yield grade if good < wanted else Grade.OK, text


def _check_space(status: BrokerStatus) -> Graded:
    for node in status.nodes:
        yield from _check_node_space(node)
    # received messages are purged when space is short, so only the others count
    purges = any(node.retention for node in status.nodes)
    limits = [("the store", status.store_used, status.store_limit, status.streams)]
    limits += [(one.name, one.bytes, one.max_bytes, (one,)) for one in status.streams]
    worst, texts = 0.0, list[str]()
    for name, used, limit, streams in limits:
        if limit:
            needed = _find_unreceived(status, streams) if purges else 1.0
            worst = max(worst, used / limit * needed)
            rest = f" ({needed:.0%} of it not received)" if purges else ""
            texts.append(f"{used / limit:.0%} of {name}{rest}")
    yield _grade(worst, _SPACE), f"used: {', '.join(texts) or 'no limits'}"


def _find_unreceived(status: BrokerStatus, streams: Sequence[StreamStatus]) -> float:
    """Return the share of the messages of streams that are not received."""
    names, messages = {one.name for one in streams}, sum(one.messages for one in streams)
    behind = sum(one.behind or 0 for one in status.partitions if one.stream in names)
    return min(1.0, behind / messages) if messages else 0.0


def _check_node_space(node: NodeReport) -> Graded:
    if node.frozen:
        yield Grade.CRITICAL, f"{node.name} stores nothing more: {node.frozen}"
    if node.free < node.reserve:
        free, reserve = format_size(node.free), format_size(node.reserve)
        text = f"{node.name} has {free} of its disk free, less than the {reserve} of --reserve"
        yield Grade.WARNING, text
    for stream, space in node.retention.items():
        if space.state.is_full:
            names = " and ".join(space.needed_by) or "a receiver"
            full = f"{stream} at {node.name} is full since {space.since}, {space.state}"
            text = f"{full}: {names} still needs its oldest messages; start that receiver"
            yield Grade.CRITICAL, text


def _check_receivers(status: BrokerStatus) -> Graded:
    current = status.current_partitions
    used = [one for one in status.partitions if one.partition < current or one.behind]
    bad = [found for one in used if (found := _check_partition(one))[0]]
    yield from bad[:_MOST_NAMED]
    if rest := bad[_MOST_NAMED:]:
        yield max(grade for grade, _ in rest), f"and {format_count(len(rest), 'more partition')}"
    if foreign := status.foreign_messages:
        messages = format_count(sum(foreign.values()), "message")
        names = format_names([f"p{one}" for one in sorted(foreign)], _MOST_NAMED)
        todo = f"run `logbroker partitions {max(foreign) + 1}`, and start receivers for them"
        text = f"nobody receives {messages} of {names}, copied from another site: {todo}"
        yield Grade.CRITICAL, text
    yield from (_check_table(one) for one in status.tables)
    oldest = max((one.behind_seconds or 0.0 for one in status.partitions), default=0.0)
    yield Grade.OK, _describe_waiting(status.behind, oldest)


def _describe_waiting(messages: int, oldest: float) -> str:
    age = f", the oldest for {format_rounded(oldest)}" if messages else ""
    return f"{format_count(messages, 'message', 'wait')}{age}"


def _check_table(one: TableStatus) -> tuple[Grade, str]:
    """Grade a table: the stream keeps its lines until they are written or it is forgotten."""
    grade = _grade(one.behind_seconds, _AGE_OF_RUNS if one.between_runs else _AGE)
    if not one.readable or (one.running is False and not one.between_runs):
        grade = max(Grade.WARNING, grade)
    todo = "; start its writer, or drop it: `logreceiver table --forget`"
    return grade, f"table {one.text()}{todo if grade and not one.running else ''}"


def _check_partition(one: PartitionStatus) -> tuple[Grade, str]:
    name, age = f"p{one.partition}", one.behind_seconds or 0.0
    if one.error:
        reason = f"its offset cannot be read, so no receiver can claim it: {one.error}"
        return Grade.CRITICAL, f"{name}: {reason}; repair it with `logreceiver offsets set`"
    text = f"{name}: {_describe_waiting(one.behind or 0, age)}"
    grade = _grade(age, _AGE)
    if one.missing_seconds >= _MISSING:
        grade, text = max(grade, Grade.WARNING), f"{text}; {_describe_missing(one)}"
    return grade, text


def _describe_missing(one: PartitionStatus) -> str:
    """Return since when a partition has no receiver, and why."""
    if one.owner is None:
        return "it never had a receiver: start one with this partition"
    since = f"no receiver for {format_rounded(one.missing_seconds)}"
    if one.moved:
        return f"{since}, since its offset was moved by hand: start its receiver"
    return f"{since}: {one.owner} {'has ended' if one.released else 'does not answer'}"


def _check_certificates(status: BrokerStatus) -> Graded:
    now = datetime.fromisoformat(status.now)
    ends = [(node.name, one) for node in status.nodes for one in node.certificates]
    for name, one in ends:
        left = (one.not_after - now).total_seconds()
        when = f"ends in {format_rounded(left)}" if left > 0 else f"ended on {one.not_after:%F}"
        yield _grade(-left, _CERTIFICATE), f"certificate {one.path} on {name} {when}"
    if not ends:
        yield Grade.OK, "no broker has a certificate"


def _check_sites(status: BrokerStatus) -> Graded:
    copies = [(one, stream.name) for stream in status.streams for one in stream.sites]
    for name in dict.fromkeys(one.name for one, _ in copies):
        of_site = [(one, stream) for one, stream in copies if one.name == name]
        away = [(one, stream) for one, stream in of_site if one.behind is None]
        if away:
            streams = format_names([stream for _, stream in away], _MOST_NAMED)
            longest = max((one for one, _ in away), key=lambda one: one.contact_age)
            text = f"the copy of {streams} from site {name} is {longest.text(status.now)}"
            yield Grade.WARNING, text
        else:
            yield Grade.OK, f"site {name}: {sum(one.lag for one, _ in of_site)} behind"
    for node in status.nodes:
        if node.site_remotes and node.site_links != node.site_remotes:
            yield Grade.WARNING, f"{node.name} is {describe_links(node)} (--site-remote)"
    if not copies:
        yield Grade.OK, "this broker copies no other site"


_CHECK = {
    "connection": _check_connection,
    "stream": _check_stream,
    "space": _check_space,
    "receivers": _check_receivers,
    "certificates": _check_certificates,
    "sites": _check_sites,
}


def find_worst(results: Iterable[CheckResult]) -> Grade:
    """Return the worst grade. UNKNOWN is better than WARNING: it must not hide a known problem."""
    return max((one.grade for one in results), key=_BADNESS.index, default=Grade.OK)


def format_nagios(results: Sequence[CheckResult]) -> str:
    """Return one line for Nagios: the worst grade, then what is wrong, the worst first.

    Checks with the same text are named together. If nothing is wrong, all results are shown.
    """
    worst = find_worst(results)
    shown = [one for one in results if worst is Grade.OK or one.grade is not Grade.OK]
    shown.sort(key=lambda one: -_BADNESS.index(one.grade))
    by_text: dict[str, list[CheckResult]] = {}
    for one in shown:
        by_text.setdefault(one.text, []).append(one)
    parts = (_format_group(text, group, worst) for text, group in by_text.items())
    return f"{worst.name} logbroker {printable('; '.join(parts)).replace('|', '/')}"


def _format_group(text: str, group: Sequence[CheckResult], worst: Grade) -> str:
    """Return the checks and their text, with the grade if it is not the worst of all."""
    names, grade = ", ".join(dict.fromkeys(one.check for one in group)), group[0].grade
    return f"{names}: {text}" if grade is worst else f"{grade.name} {names}: {text}"
