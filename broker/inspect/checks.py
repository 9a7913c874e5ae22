"""`logbroker check`: five checks of a broker for a monitoring system, from its status document. Decides only.

| check | what it judges |
|---|---|
| connection | the broker is reached in time |
| stream | leader and replicas of each stream, damage, partitions and their consumers |
| space | how full streams and disk are, writes that failed, hosts that wait for space |
| receivers | how long messages have waited for the receiver of their partition, or that none reads them |
| certificates | how long the certificates of the brokers are valid |
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    "Limit",
    "Observed",
    "certificate_ends",
    "judge",
    "overall",
    "retention_of",
    "to_json",
    "to_nagios",
]

_DAY = 86_400.0
_NAMED = 5  # partitions in one line
_NEAR_EXPIRY = 0.8  # of a stream's max_age
_MOST_LAG = 200  # operations, and
_MOST_SILENCE = 10.0  # seconds, from which on a replica does not count


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


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A grade and its reason, one line."""

    check: Check
    grade: Grade
    text: str


@dataclass(frozen=True, slots=True)
class Limit:
    """From where on, inclusive, a value is a warning, and from where on critical."""

    warning: float
    critical: float

    def grade(self, value: float) -> Grade:
        """Return the grade of a value that should be low."""
        if value >= self.critical:
            return Grade.CRITICAL
        return Grade.WARNING if value >= self.warning else Grade.OK


_AGE = Limit(600.0, 3600.0)  # seconds that the oldest message waits for its receiver
_SPACE = Limit(75.0, 90.0)  # percent
_CONNECT = Limit(0.5, 1.0)  # seconds


@dataclass(frozen=True, slots=True)
class Observed:
    """What the checks go by; `trouble` says why something is None.

    `now` is this machine's time, `connect_seconds` how long the connection and an answer took, `certificate_end` is of the
    certificate that the server showed (RFC 3339).
    """

    server: str
    now: datetime
    connect_seconds: float | None = None
    certificate_end: str | None = None
    status: BrokerStatus | None = None
    trouble: str = ""


def judge(checks: Iterable[Check], seen: Observed) -> list[CheckResult]:
    """Return what each check finds, in their order; at least one finding for each."""
    return [finding for check in checks for finding in _judged(check, seen)]


def judge_status(status: BrokerStatus) -> list[CheckResult]:
    """Return what is not as it should be, by the usual limits."""
    judged = (
        CheckResult(check, *found) for check, of in _OF_STATUS.items() for found in of(status)
    )
    return [finding for finding in judged if finding.grade is not Grade.OK]


def _judged(check: Check, seen: Observed) -> Iterable[CheckResult]:
    status = seen.status
    match check:
        case Check.CONNECTION:
            found = _connection(seen)
        case Check.CERTIFICATES if seen.connect_seconds is not None:
            found = _certificates(seen)
        case Check.STREAM if status is None and seen.connect_seconds is not None:
            found = iter([(Grade.CRITICAL, seen.trouble)])  # no such stream, no leader, no majority
        case _ if status is not None:
            found = _OF_STATUS[check](status)
        case _:
            found = iter([(Grade.UNKNOWN, seen.trouble)])
    return [CheckResult(check, grade, text) for grade, text in found]


def _connection(seen: Observed) -> Graded:
    if seen.connect_seconds is None:
        yield Grade.CRITICAL, seen.trouble
        return
    took = f"{seen.connect_seconds * 1000:.0f} ms"
    yield _CONNECT.grade(seen.connect_seconds), f"{seen.server} answered in {took}"


def _stream(status: BrokerStatus) -> Graded:
    if not status.current_partitions:
        yield Grade.CRITICAL, "the number of partitions is not set: run `logbroker apply`"
    for stream in status.streams:
        if stream.lost_messages:
            yield (
                Grade.CRITICAL,
                f"{stream.lost_messages} messages of {stream.name} were damaged and are lost",
            )
    if without := [one.partition for one in status.partitions if one.behind is None]:
        names = _named([f"p{number}" for number in without], len(without))
        yield Grade.CRITICAL, f"no consumer answers for {names}; see `logbroker apply --dry-run`"
    for stream in status.streams:
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
        yield from _disk(node)
    spaces = list(retention_of(status.nodes))
    for server, stream, space in spaces:
        yield from _retention(f"{stream} at {server}", space)
    shares = list(_shares(status))
    worst = max((share for _, share in shares), default=0.0)
    used = ", ".join(f"{share:.0f} % of {name}" for name, share in shares) or "no limits"
    if spaces and status.messages:
        # what is received is purged for new messages, so that only the rest counts
        unreceived = min(1.0, status.behind / status.messages)
        worst, used = worst * unreceived, f"{used}, {unreceived:.0%} of it not received"
    yield _SPACE.grade(worst), f"used: {used}"


def _disk(node: Mapping[str, Any]) -> Graded:
    name, free, reserve = node.get("name", "?"), node.get("free"), node.get("reserve")
    if frozen := node.get("frozen"):
        yield Grade.CRITICAL, f"{name} stores nothing more: {frozen}"
    if isinstance(free, int) and isinstance(reserve, int) and free < reserve:
        sizes = f"{format_size(free)} of its disk free, {format_size(reserve)} are reserved"
        yield Grade.WARNING, f"{name} has {sizes}"


def retention_of(
    nodes: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield what retention reports, by server and stream; another version may report other things."""
    for node in nodes:
        spaces = node.get("retention")
        for stream, space in spaces.items() if isinstance(spaces, Mapping) else ():
            if isinstance(space, Mapping):
                yield str(node.get("name", "?")), str(stream), space


def _retention(name: str, space: Mapping[str, Any]) -> Graded:
    state, needed = space.get("state"), space.get("needed_by")
    if state not in ("ok", "purging"):
        names = " and ".join(map(str, needed)) if isinstance(needed, list) else "a receiver"
        since = space.get("since")
        yield (
            Grade.CRITICAL,
            f"{name} is full since {since}, {state}: {names} needs its oldest messages",
        )


def _shares(status: BrokerStatus) -> Iterator[tuple[str, float]]:
    bounds = [("the store", status.store_used, status.store_limit)]
    for stream in status.streams:
        bounds.append((f"{stream.name}'s bytes", stream.bytes, stream.max_bytes))
        bounds.append((f"{stream.name}'s messages", stream.messages, stream.max_messages))
    for name, used, bound in bounds:
        if bound:
            yield name, 100.0 * used / bound


def _receivers(status: BrokerStatus) -> Graded:
    expiry = min((s.max_age_seconds for s in status.streams if s.max_age_seconds), default=None)
    bad = [found for one in status.partitions if (found := _partition(one, expiry))]
    yield from bad[:_NAMED]
    if rest := bad[_NAMED:]:
        yield max(grade for grade, _ in rest), f"and {len(rest)} more partitions"
    if (unread := status.unread) is not None and unread.messages:
        names = _named(unread.subjects, unread.subject_count)
        yield (
            Grade.WARNING,
            f"{unread.messages} messages on subjects that no receiver reads: {names}",
        )
    oldest = max((one.behind_seconds or 0.0 for one in status.partitions), default=0.0)
    age = f", the oldest for {short_duration(oldest)}" if status.behind else ""
    yield Grade.OK, f"{status.behind} messages wait{age}"


def _partition(one: PartitionStatus, expiry: float | None) -> tuple[Grade, str] | None:
    name, age = f"p{one.partition}", one.behind_seconds or 0.0
    if one.error:
        return (
            Grade.CRITICAL,
            f"{name}: its offset cannot be read, so no receiver can claim it: {one.error}; `logreceiver offsets set` writes it anew",
        )
    text = f"{name}: {one.behind} messages wait, the oldest for {short_duration(age)}"
    if one.owner is None:
        text += ", and it never had a receiver"
    if expiry and age >= _NEAR_EXPIRY * expiry:
        return Grade.CRITICAL, f"{text}; it expires after {short_duration(expiry)}"
    grade = _AGE.grade(age)
    return (grade, text) if grade else None


def _certificates(seen: Observed) -> Graded:
    nodes = seen.status.nodes if seen.status is not None else ()
    ends = [(f"{path} on {server}", end) for server, path, end in certificate_ends(nodes)]
    if seen.certificate_end is not None:
        ends.insert(0, (f"of {seen.server}", datetime.fromisoformat(seen.certificate_end)))
    if not ends:
        yield Grade.OK, "the connection is not secured by TLS"
    for name, end in ends:
        left = (end - seen.now).total_seconds()
        when = (
            f"ends in {short_duration(left)}" if left > 0 else f"ended {short_duration(-left)} ago"
        )
        yield Limit(-30 * _DAY, -7 * _DAY).grade(-left), f"certificate {name} {when}"


def certificate_ends(nodes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, datetime]]:
    """Yield each server's certificates by path, with when they end; another version may report other things."""
    for node in nodes:
        listed = node.get("certificates")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, Mapping) and (end := _time(one.get("not_after"))):
                yield str(node.get("name", "?")), str(one.get("path", "?")), end


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo else None


def _named(names: Sequence[str], count: int) -> str:
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


_OF_STATUS: dict[Check, Callable[[BrokerStatus], Graded]] = {
    Check.STREAM: _stream,
    Check.SPACE: _space,
    Check.RECEIVERS: _receivers,
}
_BADNESS = (Grade.OK, Grade.UNKNOWN, Grade.WARNING, Grade.CRITICAL)


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


def to_json(findings: Sequence[CheckResult]) -> str:
    """Return what was found for programs, by check."""
    checks = dict.fromkeys(one.check for one in findings)
    return json.dumps(
        {
            "status": overall(findings).name,
            "checks": [_check_document(check, findings) for check in checks],
        },
        indent=2,
    )


def _check_document(check: Check, findings: Sequence[CheckResult]) -> dict[str, Any]:
    own = [one for one in findings if one.check is check]
    texts = [{"status": one.grade.name, "text": one.text} for one in own]
    return {"check": check.value, "status": overall(own).name, "findings": texts}
