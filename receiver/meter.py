"""What a receiver has done so far and how its partitions stand: counted by batches, never by lines, and logged as it happens."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from broker.app.rate import Rate
from broker.wire.offset import Offset
from receiver.consume.judging import Finding, Kind
from receiver.consume.outcome import Blocked, Done
from receiver.storage.gaps import gap_report

__all__ = ["Meter", "Standing"]

_SECOND = 1_000_000_000
_MOST_LOGGED = 20  # findings of a report

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Standing:
    """How one partition stands.

    `next` is the first sequence that no file holds yet, 0 before it was claimed; `owner` is who has it while we stand by,
    `successor` who took it from us for good, and what is to be done about it.
    `pending` is how many messages waited after the last batch; `stored_at` when the last received message was stored,
    `committed_at` when a batch was committed, `blocked_since` when it got stuck: in nanoseconds since the epoch, 0 for
    never. `seconds` is what all batches took together, `batch_seconds` one of the last stay.
    """

    rate: Rate
    next: int = 0
    epoch: int = 0
    owner: str = ""
    successor: str = ""
    messages: int = 0
    lines: int = 0
    bytes: int = 0
    batches: int = 0
    quarantined: int = 0
    seconds: float = 0.0
    batch_seconds: float = 0.0
    pending: int = 0
    stored_at: int = 0
    committed_at: int = 0
    blocked: Blocked | None = None
    blocked_since: int = 0
    found: Counter[str] = field(default_factory=Counter)
    found_bytes: Counter[str] = field(default_factory=Counter)


class Meter:
    """The counters of one run of the receiver; `clock` is nanoseconds since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0, now."""
        self._clock = clock
        self.since = clock()
        self.partitions: dict[int, Standing] = {}

    def expect(self, partition: int) -> None:
        """Take note of a partition that is to be received."""
        now = self._clock() / _SECOND
        self.partitions.setdefault(partition, Standing(Rate(now, now)))

    def claimed(self, partition: int, offset: Offset) -> None:
        """Take note that a partition is ours, and where it goes on."""
        standing = self.partitions[partition]
        standing.next, standing.epoch, standing.owner = offset.next, offset.epoch, ""
        standing.blocked, standing.blocked_since = None, 0
        if offset.last_time:
            stored = datetime.fromisoformat(offset.last_time)
            standing.stored_at = int(stored.timestamp() * 1000) * (_SECOND // 1000)

    def done(self, done: Done, batches: int, seconds: float) -> None:
        """Count what was committed in so many batches, which took so many seconds of work; the partition goes on."""
        standing, now = self.partitions[done.partition], self._clock()
        if standing.blocked is not None:
            logger.info("partition %d goes on", done.partition)
        standing.next = done.until
        standing.batches += batches
        standing.seconds += seconds
        standing.batch_seconds = seconds / batches if batches else standing.batch_seconds
        standing.messages += done.messages
        standing.lines += done.lines
        standing.bytes += done.size
        standing.quarantined += done.quarantined
        standing.pending = done.pending
        standing.stored_at = done.stored_at or standing.stored_at
        standing.committed_at = now if batches else standing.committed_at
        standing.blocked, standing.blocked_since = None, 0
        standing.rate.add(done.size, done.lines, now / _SECOND)
        for finding in done.findings:
            standing.found[finding.kind.value] += finding.blocks
            standing.found_bytes[finding.kind.value] += finding.end - finding.start
        _log(done)

    def forget(self, partition: int) -> None:
        """Take note that a partition is not received any more, since it is empty and beyond the number of partitions."""
        self.partitions.pop(partition, None)

    def standing_by(self, partition: int, owner: str) -> None:
        """Take note that a partition is waited for while `owner` has it."""
        self._let_go(partition).owner = owner

    def lost(self, partition: int, successor: str) -> None:
        """Take note that another receiver has taken a partition over."""
        self._let_go(partition).successor = successor

    def _let_go(self, partition: int) -> Standing:
        standing = self.partitions[partition]
        standing.pending, standing.blocked, standing.blocked_since = 0, None, 0
        return standing

    def blocked(self, blocked: Blocked) -> None:
        """Take note that a partition is stuck; it has been since the first time that this was said. Each reason is logged once."""
        standing = self.partitions[blocked.partition]
        if standing.blocked != blocked:
            logger.error(
                "partition %d is blocked, its lines wait in the stream: %s: %s",
                *(blocked.partition, blocked.cause.value, blocked.detail),
            )
        standing.blocked = blocked
        standing.blocked_since = standing.blocked_since or self._clock()

    def waiting(self, partition: int, messages: int) -> None:
        """Take note of how many messages wait for a partition."""
        self.partitions[partition].pending = messages


def _log(done: Done) -> None:
    for finding in done.findings[:_MOST_LOGGED]:
        logger.warning("partition %d: %s", done.partition, _describe(finding))
    if rest := done.findings[_MOST_LOGGED:]:
        logger.warning(
            "partition %d: %d more of these; every gap is in %s",
            *(done.partition, len(rest), gap_report(done.partition)),
        )
    for notice in done.notices:
        logger.warning("partition %d: %s", done.partition, notice)
    if done.quarantined:
        logger.warning(
            "partition %d: %d messages that are no lines were set aside in .quarantine",
            *(done.partition, done.quarantined),
        )
    logger.debug(
        "partition %d: committed up to %d, %d lines", done.partition, done.until, done.lines
    )


def _describe(finding: Finding) -> str:
    if finding.kind is Kind.LOSS:
        since = f"since sequence {finding.after}" if finding.after else "from the first on"
        return (
            f"loss: messages of host {finding.host} {since} were removed from the stream before they were received, seen "
            f"at sequence {finding.sequence}"
        )
    return (
        f"{finding.kind.value} of {finding.end - finding.start} bytes: host {finding.host}, file {finding.file!r}, "
        f"bytes {finding.start} to {finding.end}, seen at sequence {finding.sequence}"
    )
