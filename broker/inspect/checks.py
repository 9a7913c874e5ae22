"""`logbroker check`: five checks of a broker for a monitoring system, from its status document. Decides only.

| check | what it judges |
|---|---|
| connection | the broker is reached in time |
| stream | leader and replicas of each stream, damage, partitions and their consumers |
| space | how full streams and disk are, writes that failed, hosts that wait for space |
| receivers | how long messages have waited for the receiver of their partition, or that none reads them |
| certificates | how long the certificates of the brokers are valid |
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any

from broker.app.units import format_size
from broker.app.untrusted import printable
from broker.inspect.status import (
    BrokerStatus,
    PartitionStatus,
    Replica,
    StreamStatus,
    short_duration,
)

__all__ = [
    "Check",
    "CheckResult",
    "Grade",
    "Observed",
    "check_document",
    "judge",
    "judge_status",
    "overall",
    "to_nagios",
]

_DAY = 86_400.0
_NAMED = 5  # partitions in one line
_NEAR_EXPIRY = 0.8  # of a stream's max_age
_MOST_LAG = 200  # operations, and
_MOST_SILENCE = 10.0  # seconds, from which on a replica does not count
# from where on, inclusive, a value is a warning, and from where on critical
_AGE = (600.0, 3600.0)  # seconds that the oldest message waits for its receiver
_SPACE = (0.75, 0.90)
_CONNECT = (0.5, 1.0)  # seconds
_CERTIFICATE = (-30 * _DAY, -7 * _DAY)  # seconds since its end


class Check(Enum):
    """What is checked; all of it, unless some are named."""

    CONNECTION = "connection"
    STREAM = "stream"
    SPACE = "space"
    RECEIVERS = "receivers"
    CERTIFICATES = "certificates"


class Grade(IntEnum):
    """How it is, and the exit code of a plugin of Nagios that says so."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


Graded = Iterator[tuple[Grade, str]]
_BADNESS = (Grade.OK, Grade.UNKNOWN, Grade.WARNING, Grade.CRITICAL)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A grade and its reason, one line."""

    check: Check
    grade: Grade
    text: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the checks go by; `trouble` says why something is None.

    `now` is this machine's time, `connect_seconds` how long the connection and an answer took, `certificate_end` is of the
    certificate that the server showed.
    """

    server: str
    now: datetime
    connect_seconds: float | None = None
    certificate_end: datetime | None = None
    status: BrokerStatus | None = None
    trouble: str = ""


def judge(checks: Iterable[Check], seen: Observed) -> list[CheckResult]:
    """Return what each check finds, in their order; at least one finding for each."""
    return [CheckResult(check, *found) for check in checks for found in _judged(check, seen)]


def judge_status(status: BrokerStatus) -> list[CheckResult]:
    """Return what is not as it should be, by the usual limits."""
    judged = (CheckResult(check, *one) for check, of in _OF_STATUS.items() for one in of(status))
    return [finding for finding in judged if finding.grade is not Grade.OK]


def _judged(check: Check, seen: Observed) -> Graded:
    is_reached = seen.connect_seconds is not None
    if check is Check.CONNECTION:
        return _connection(seen)
    if check is Check.CERTIFICATES and is_reached:
        return _certificates(seen)
    if seen.status is not None:
        return _OF_STATUS[check](seen.status)
    # no such stream, no leader, no majority
    is_broken = check is Check.STREAM and is_reached
    return iter([(Grade.CRITICAL if is_broken else Grade.UNKNOWN, seen.trouble)])


def _grade(value: float, limits: tuple[float, float]) -> Grade:
    return Grade(sum(value >= limit for limit in limits))


def _connection(seen: Observed) -> Graded:
    if seen.connect_seconds is None:
        yield Grade.CRITICAL, seen.trouble
    else:
        took = f"{seen.server} answered in {seen.connect_seconds * 1000:.0f} ms"
        yield _grade(seen.connect_seconds, _CONNECT), took


def _stream(status: BrokerStatus) -> Graded:
    if not status.current_partitions:
        yield Grade.CRITICAL, "the number of partitions is not set: run `logbroker apply`"
    if without := [f"p{one.partition}" for one in status.partitions if one.behind is None]:
        names = _named(without, len(without))
        yield Grade.CRITICAL, f"no consumer answers for {names}; see `logbroker apply --dry-run`"
    for stream in status.streams:
        if lost := stream.lost_messages:
            yield Grade.CRITICAL, f"{lost} messages of {stream.name} were damaged and are lost"
        yield from _replicas(stream)


def _replicas(stream: StreamStatus) -> Graded:
    wanted, good = stream.wanted_replicas, [one for one in stream.replicas if _counts(one)]
    if not stream.has_leader:
        yield Grade.CRITICAL, f"stream {stream.name} has no leader: nothing is stored"
    for one in stream.replicas:
        if one not in good:
            state = "is offline" if one.offline else f"is {one.lag} operations behind"
            yield Grade.WARNING, f"{one.name} {state}, seen {short_duration(one.seen_seconds)} ago"
    grade = Grade.OK
    if len(good) < wanted:
        grade = Grade.CRITICAL if 2 * len(good) <= wanted else Grade.WARNING
    yield grade, f"{len(good)} of {wanted} servers hold stream {stream.name}"


def _counts(one: Replica) -> bool:
    is_near = one.lag < _MOST_LAG and one.seen_seconds < _MOST_SILENCE
    return one.leader or (one.current and not one.offline and is_near)


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
    shares = list(_shares(status))
    worst = max((share for _, share in shares), default=0.0)
    used = ", ".join(f"{share:.0%} of {name}" for name, share in shares) or "no limits"
    if status.messages and any(node.retention for node in status.nodes):
        # what is received is purged for new messages, so that only the rest counts
        unreceived = min(1.0, status.behind / status.messages)
        worst, used = worst * unreceived, f"{used}, {unreceived:.0%} of it not received"
    yield _grade(worst, _SPACE), f"used: {used}"


def _shares(status: BrokerStatus) -> Iterator[tuple[str, float]]:
    bounds = [("the store", status.store_used, status.store_limit)]
    for stream in status.streams:
        bounds.append((f"{stream.name}'s bytes", stream.bytes, stream.max_bytes))
        bounds.append((f"{stream.name}'s messages", stream.messages, stream.max_messages))
    return ((name, used / bound) for name, used, bound in bounds if bound)


def _receivers(status: BrokerStatus) -> Graded:
    expiry = min((s.max_age_seconds for s in status.streams if s.max_age_seconds), default=None)
    bad = [found for one in status.partitions if (found := _partition(one, expiry))[0]]
    yield from bad[:_NAMED]
    if rest := bad[_NAMED:]:
        yield max(grade for grade, _ in rest), f"and {len(rest)} more partitions"
    if (unread := status.unread) is not None and unread.messages:
        names = _named(unread.subjects, unread.subject_count)
        text = f"{unread.messages} messages on subjects that no receiver reads: {names}"
        yield Grade.WARNING, text
    oldest = max((one.behind_seconds or 0.0 for one in status.partitions), default=0.0)
    age = f", the oldest for {short_duration(oldest)}" if status.behind else ""
    yield Grade.OK, f"{status.behind} messages wait{age}"


def _partition(one: PartitionStatus, expiry: float | None) -> tuple[Grade, str]:
    name, age = f"p{one.partition}", one.behind_seconds or 0.0
    if one.error:
        reason = f"its offset cannot be read, so no receiver can claim it: {one.error}"
        return Grade.CRITICAL, f"{name}: {reason}; `logreceiver offsets set` writes it anew"
    text = f"{name}: {one.behind} messages wait, the oldest for {short_duration(age)}"
    if one.owner is None:
        text += ", and it never had a receiver"
    if expiry and age >= _NEAR_EXPIRY * expiry:
        return Grade.CRITICAL, f"{text}; it expires after {short_duration(expiry)}"
    return _grade(age, _AGE), text


def _certificates(seen: Observed) -> Graded:
    ends = [(f"of {seen.server}", seen.certificate_end)] if seen.certificate_end else []
    for node in seen.status.nodes if seen.status else ():
        ends += [(f"{one.path} on {node.name}", one.not_after) for one in node.certificates]
    if not ends:
        yield Grade.OK, "the connection is not secured by TLS"
    for name, end in ends:
        left = (end - seen.now).total_seconds()
        time = short_duration(abs(left))
        when = f"ends in {time}" if left > 0 else f"ended {time} ago"
        yield _grade(-left, _CERTIFICATE), f"certificate {name} {when}"


def _named(names: Sequence[str], count: int) -> str:
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


_OF_STATUS: dict[Check, Callable[[BrokerStatus], Graded]] = {
    Check.STREAM: _stream,
    Check.SPACE: _space,
    Check.RECEIVERS: _receivers,
}


def overall(findings: Iterable[CheckResult]) -> Grade:
    """Return the worst grade; what is unknown hides nothing that is known to be wrong."""
    return max((one.grade for one in findings), key=_BADNESS.index, default=Grade.OK)


def to_nagios(findings: Sequence[CheckResult]) -> str:
    """Return one line, as a plugin of Nagios writes it: what is wrong, the worst first, or that all is well."""
    worst = overall(findings)
    shown = sorted(findings, key=lambda one: -_BADNESS.index(one.grade))
    if worst is not Grade.OK:
        shown = [one for one in shown if one.grade is not Grade.OK]
    texts = [f"{one.grade.name}:{one.check.value}: {one.text}" for one in shown]
    return f"{worst.name} logbroker {printable('; '.join(texts)).replace('|', '/')}"


def check_document(findings: Sequence[CheckResult]) -> dict[str, Any]:
    """Return what was found as plain values, by check."""
    by_check = [
        (check.value, [one for one in findings if one.check is check])
        for check in dict.fromkeys(one.check for one in findings)
    ]
    return {
        "status": overall(findings).name,
        "checks": [
            {
                "check": name,
                "status": overall(own).name,
                "findings": [{"status": one.grade.name, "text": one.text} for one in own],
            }
            for name, own in by_check
        ],
    }
