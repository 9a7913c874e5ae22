"""Judges the stream: whether it is whole and read, and how long its lines wait for receivers. Decides only."""

from collections.abc import Iterator, Mapping, Sequence

from broker.looking.findings import Check, Finding, Gauge, Grade, Unit, Verdict, and_more
from broker.looking.hosts_view import silence
from broker.looking.sight import PartitionStatus, Status
from broker.looking.thresholds import Thresholds

__all__ = ["lag", "stream"]

_NAMED = 5  # partitions or subjects in one line
_NEAR_THE_END = 0.8  # of max_age


def stream(status: Status, limits: Thresholds) -> Verdict:
    """Judge whether the stream is whole, and set up for its partitions."""
    gauges = (
        Gauge("messages", status.messages, "Messages in the stream"),
        Gauge("bytes", status.bytes, "Bytes in the stream", Unit.BYTES),
        Gauge("hosts", status.hosts or 0, "Hosts with messages in the stream"),
        Gauge("lost_messages", status.lost_messages, "Messages that were found damaged"),
    )
    return Verdict(Check.STREAM, tuple(_about_stream(status)), gauges)


def _about_stream(status: Status) -> Iterator[Finding]:
    if status.lost_messages:
        yield Finding(
            Grade.CRITICAL,
            f"{status.lost_messages} messages of the store were damaged and are lost",
        )
    if not status.current_partitions:
        yield Finding(
            Grade.CRITICAL, "no number of partitions is set up: `logbroker apply` does that"
        )
    without = [one.partition for one in status.partitions if one.pending is None]
    if without:
        yield Finding(
            Grade.CRITICAL,
            f"{_partitions(without)} without a consumer that answers; is `logbroker apply` due?",
        )
    if status.strays is not None and status.strays.messages:
        names = ", ".join(status.strays.subjects[:_NAMED])
        yield Finding(
            Grade.WARNING,
            f"{status.strays.messages} messages on subjects that no receiver reads: {names}",
        )
    yield Finding(Grade.OK, f"{status.messages} messages of {status.hosts or 0} hosts")


def lag(status: Status, limits: Thresholds) -> Verdict:
    """Judge what waits for receivers, by partition."""
    ages = {one.partition: one.age(status.now) or 0.0 for one in status.partitions}
    findings = [_lag_of(one, ages[one.partition], status, limits) for one in status.partitions]
    waiting = sum(one.pending or 0 for one in status.partitions)
    oldest = max(ages.values(), default=0.0)
    bad = [finding for finding in findings if finding.grade is not Grade.OK]
    told = f"{waiting} messages wait" + (f", the oldest for {silence(oldest)}" if waiting else "")
    most = max((one.pending or 0 for one in status.partitions), default=0)
    return Verdict(
        Check.LAG,
        (*bad[:_NAMED], *and_more(bad[_NAMED:], "partitions"), Finding(Grade.OK, told)),
        (
            Gauge("messages", most, "Most messages of a partition that wait", limit=limits.lag),
            Gauge("age_seconds", oldest, "Age of the oldest of them", Unit.SECONDS, limits.age),
            Gauge("max_age_seconds", status.max_age or 0.0, "Kept; 0 for ever", Unit.SECONDS),
            *_lag_gauges(status.partitions, ages),
        ),
    )


def _lag_gauges(
    partitions: Sequence[PartitionStatus], ages: Mapping[int, float]
) -> Iterator[Gauge]:
    for one in partitions:
        number, age = str(one.partition), ages[one.partition]
        told = "Messages of a partition that wait"
        yield Gauge("partition_messages", one.pending or 0, told, label="partition", of=number)
        told = "Age of the oldest of them"
        yield Gauge("partition_age_seconds", age, told, Unit.SECONDS, label="partition", of=number)


def _lag_of(one: PartitionStatus, age: float, status: Status, limits: Thresholds) -> Finding:
    grades = [limits.lag.grade(one.pending or 0), limits.age.grade(age)]
    text = f"p{one.partition}: {one.pending} messages wait, the oldest for {silence(age)}"
    if one.error:
        grades.append(Grade.CRITICAL)
        text = f"p{one.partition}: its offset cannot be read, so nobody can receive it: {one.error}"
    elif one.owner is None:
        text += ", and it never had a receiver"
    if status.max_age and age >= _NEAR_THE_END * status.max_age:
        grades.append(Grade.CRITICAL)
        text += f"; it goes unread after {silence(status.max_age)}"
    return Finding(max(grades), text)


def _partitions(numbers: Sequence[int]) -> str:
    more = len(numbers) - _NAMED
    named = ", ".join(f"p{number}" for number in numbers[:_NAMED])
    return named + (f" and {more} more" if more > 0 else "")
