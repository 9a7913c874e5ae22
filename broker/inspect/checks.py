"""`logbroker check`: six checks of a broker for monitoring, from its status document. Decides only.

| check | what it judges |
|---|---|
| connection | the broker is reached in time |
| stream | leader and replicas of each stream, damage, partitions and their consumers |
| space | how full streams and disk are, writes that failed, hosts that wait for space |
| receivers | whether partitions have a receiver, and how long messages have waited for it |
| certificates | how long the certificates of the brokers are valid |
| sites | since when nothing was heard of a site that is copied, or that a broker is to connect to |
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from broker.inspect.status import (
    BrokerStatus,
    PartitionStatus,
    SiteStatus,
    StreamStatus,
    format_rounded,
)
from broker.inspect.status_table import describe_links
from nats_logship.app.text import format_count, format_names, printable
from nats_logship.app.units import format_size

CHECKS = ("connection", "stream", "space", "receivers", "certificates", "sites")
"""What is checked; all of it, unless some are named."""

_DAY = 86_400.0
_NAMED = 5  # partitions in one line
# from where on, inclusive, a value is a warning, and from where on critical
_AGE = (600.0, 3600.0)  # seconds that the oldest message waits for its receiver
_MISSING = 60.0  # seconds without a receiver
_SPACE = (0.75, 0.90)
_ANSWER = (0.5, 1.0)  # seconds
_CERTIFICATE = (-30 * _DAY, -7 * _DAY)  # seconds since its end


class Grade(IntEnum):
    """How it is, and the exit code of a plugin of Nagios that says so."""

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
    """Return what each check finds, in their order, at least one finding for each; `trouble` says why there is no status."""
    if status is None:  # no broker, no such stream, no leader, no majority
        broken, rest = dict.fromkeys(("connection", "stream"), Grade.CRITICAL), Grade.UNKNOWN
        return [CheckResult(check, broken.get(check, rest), trouble) for check in checks]
    return [CheckResult(check, *found) for check in checks for found in _JUDGES[check](status)]


def _grade(value: float, limits: tuple[float, float]) -> Grade:
    return Grade(sum(value >= limit for limit in limits))


def _connection(status: BrokerStatus) -> Graded:
    took = f"{status.server} answered in {status.answer_seconds * 1000:.0f} ms"
    yield _grade(status.answer_seconds, _ANSWER), took


def _stream(status: BrokerStatus) -> Graded:
    if not status.current_partitions:
        yield Grade.CRITICAL, "the number of partitions is not set: run `logbroker apply`"
    if without := [f"p{one.partition}" for one in status.partitions if one.behind is None]:
        yield Grade.CRITICAL, f"no consumer answers for {format_names(without, _NAMED)}"
    for stream in status.streams:
        if lost := stream.lost_messages:
            done = "was damaged and is lost" if lost == 1 else "were damaged and are lost"
            yield Grade.CRITICAL, f"{format_count(lost, 'message')} of {stream.name} {done}"
        yield from _replicas(stream)


def _replicas(stream: StreamStatus) -> Graded:
    wanted, good = stream.wanted_replicas, stream.current_replicas
    if not stream.leader:
        yield Grade.CRITICAL, f"stream {stream.name} has no leader: nothing is stored"
    for one in stream.followers:
        if one.offline or not one.current:
            state = (
                "is offline" if one.offline else f"is {format_count(one.lag, 'operation')} behind"
            )
            yield Grade.WARNING, f"{one.name} {state}, {one.last_contact}"
    missing = Grade.CRITICAL if 2 * good <= wanted else Grade.WARNING
    yield (
        missing if good < wanted else Grade.OK,
        f"{good} of {format_count(wanted, 'server', 'hold')} {stream.name}",
    )


def _space(status: BrokerStatus) -> Graded:
    for node in status.nodes:
        if node.frozen:
            yield Grade.CRITICAL, f"{node.name} stores nothing more: {node.frozen}"
        if node.free < node.reserve:
            free, reserve = format_size(node.free), format_size(node.reserve)
            yield Grade.WARNING, f"{node.name} has {free} of its disk free, {reserve} are reserved"
        for stream, space in node.retention.items():
            if space.state not in ("ok", "purging"):
                names = " and ".join(space.needed_by) or "a receiver"
                full = f"{stream} at {node.name} is full since {space.since}, {space.state}"
                yield Grade.CRITICAL, f"{full}: {names} needs its oldest messages"
    bounds = [("the store", status.store_used, status.store_limit)]
    bounds += [(one.name, one.bytes, one.max_bytes) for one in status.streams]
    shares = {name: used / bound for name, used, bound in bounds if bound}
    worst = max(shares.values(), default=0.0)
    used = ", ".join(f"{share:.0%} of {name}" for name, share in shares.items()) or "no limits"
    if status.messages and any(node.retention for node in status.nodes):
        # what is received is purged for new messages, so that only the rest counts
        unreceived = min(1.0, status.behind / status.messages)
        worst, used = worst * unreceived, f"{used}, {unreceived:.0%} of it not received"
    yield _grade(worst, _SPACE), f"used: {used}"


def _receivers(status: BrokerStatus) -> Graded:
    used = [
        one for one in status.partitions if one.partition < status.current_partitions or one.behind
    ]
    bad = [found for one in used if (found := _partition(one))[0]]
    yield from bad[:_NAMED]
    if rest := bad[_NAMED:]:
        yield max(grade for grade, _ in rest), f"and {format_count(len(rest), 'more partition')}"
    oldest = max((one.behind_seconds or 0.0 for one in status.partitions), default=0.0)
    yield Grade.OK, _waiting(status.behind, oldest)


def _waiting(messages: int, oldest: float) -> str:
    age = f", the oldest for {format_rounded(oldest)}" if messages else ""
    return f"{format_count(messages, 'message', 'wait')}{age}"


def _partition(one: PartitionStatus) -> tuple[Grade, str]:
    name, age = f"p{one.partition}", one.behind_seconds or 0.0
    if one.error:
        reason = f"its offset cannot be read, so no receiver can claim it: {one.error}"
        return Grade.CRITICAL, f"{name}: {reason}; `logreceiver offsets set` writes it anew"
    text = f"{name}: {_waiting(one.behind or 0, age)}"
    grade = _grade(age, _AGE)
    if one.missing_seconds >= _MISSING:
        grade, text = max(grade, Grade.WARNING), f"{text}; {_missing(one)}"
    return grade, text


def _missing(one: PartitionStatus) -> str:
    """Return since when a partition has no receiver, and why."""
    if one.owner is None:
        return "it never had a receiver"
    since = f"no receiver for {format_rounded(one.missing_seconds)}"
    if one.moved:
        return f"{since}, since its offset was moved by hand"
    return f"{since}: {one.owner} {'has ended' if one.released else 'does not answer'}"


def _certificates(status: BrokerStatus) -> Graded:
    now = datetime.fromisoformat(status.now)
    ends = [(node.name, one) for node in status.nodes for one in node.certificates]
    for name, one in ends:
        left = (one.not_after - now).total_seconds()
        when = f"ends in {format_rounded(left)}" if left > 0 else f"ended on {one.not_after:%F}"
        yield _grade(-left, _CERTIFICATE), f"certificate {one.path} on {name} {when}"
    if not ends:
        yield Grade.OK, "no broker has a certificate"


def _sites(status: BrokerStatus) -> Graded:
    copies = [(one, stream.name) for stream in status.streams for one in stream.sites]
    for name in dict.fromkeys(one.name for one, _ in copies):
        of_site = [(one, stream) for one, stream in copies if one.name == name]
        away = [(one, stream) for one, stream in of_site if one.behind is None]
        if away:
            streams = format_names([stream for _, stream in away], _NAMED)
            yield Grade.WARNING, f"the copy of {streams} from site {name} is {_worst(away, status)}"
        else:
            yield Grade.OK, f"site {name}: {sum(one.lag for one, _ in of_site)} behind"
    for node in status.nodes:
        if node.site_remotes and node.site_links != node.site_remotes:
            yield Grade.WARNING, f"{node.name} is {describe_links(node)} (--site-remote)"
    if not copies:
        yield Grade.OK, "no lines of other sites are copied here"


def _worst(away: Sequence[tuple[SiteStatus, str]], status: BrokerStatus) -> str:
    """Return the text of the copy that was not heard of for the longest time."""
    longest = max((one for one, _ in away), key=lambda one: one.contact_seconds or math.inf)
    return longest.text(status.now)


_JUDGES = dict(
    zip(CHECKS, (_connection, _stream, _space, _receivers, _certificates, _sites), strict=True)
)


def find_worst(findings: Iterable[CheckResult]) -> Grade:
    """Return the worst grade; what is unknown hides nothing that is known to be wrong."""
    return max((one.grade for one in findings), key=_BADNESS.index, default=Grade.OK)


def format_nagios(findings: Sequence[CheckResult]) -> str:
    """Return one line, as a plugin of Nagios writes it: what is wrong, the worst first, or that all is well."""
    worst = find_worst(findings)
    shown = [one for one in findings if worst is Grade.OK or one.grade is not Grade.OK]
    shown.sort(key=lambda one: -_BADNESS.index(one.grade))
    text = "; ".join(f"{one.grade.name}:{one.check}: {one.text}" for one in shown)
    return f"{worst.name} logbroker {printable(text).replace('|', '/')}"
