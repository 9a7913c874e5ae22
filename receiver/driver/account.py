"""What is told of one partition as it goes: to the log at once, to the meter for whoever asks. Decides nothing."""

import logging

from broker.wire.offset import Offset
from receiver.consume.judging import Finding, Kind
from receiver.consume.outcome import Blocked, Cause, Done, Report
from receiver.meter import Meter

__all__ = ["Account"]

_MOST_TOLD = 20  # findings of a stay in the log

logger = logging.getLogger(__name__)


class Account:
    """The account of one partition."""

    def __init__(self, partition: int, meter: Meter) -> None:
        """Expect the partition to be received."""
        self._partition = partition
        self._meter = meter
        self._blocked: str | None = None
        meter.expect(partition)

    def claimed(self, offset: Offset) -> None:
        """Tell that it is ours."""
        self._blocked = None
        self._meter.claimed(self._partition, offset)
        logger.info(
            "partition %d: from sequence %d, epoch %d", self._partition, offset.next, offset.epoch
        )

    def standing_by(self, owner: str) -> None:
        """Take note that `owner` has it, and that we wait for it to go."""
        self._meter.standing_by(self._partition, owner)

    def lost(self, successor: str) -> None:
        """Take note that another receiver has taken it over."""
        self._meter.lost(self._partition, successor)

    def waiting(self, messages: int) -> None:
        """Take note of how many messages wait."""
        self._meter.waiting(self._partition, messages)

    def stayed(self, report: Report) -> None:
        """Tell what a stay has done, and that the partition goes on if it was blocked."""
        if self._blocked is not None:
            logger.info("partition %d goes on", self._partition)
        self._blocked = None
        self._meter.done(report.done, report.batches, report.seconds)
        self._tell(report.done)

    def blocked(self, blocked: Blocked) -> None:
        """Tell why it cannot go on, once for each reason."""
        self._meter.blocked(blocked)
        words = f"{blocked.cause.value}: {blocked.detail}"
        if words != self._blocked:
            logger.error(
                "partition %d is blocked, its lines wait in the stream: %s", self._partition, words
            )
        self._blocked = words

    def overdue(self, seconds: float) -> None:
        """Tell that a task should have reported by now."""
        self.blocked(
            Blocked(
                self._partition,
                Cause.SPARK,
                f"no report of its task for {seconds:.0f} s: Spark has no executor for it, or a disk hangs",
            )
        )

    def _tell(self, done: Done) -> None:
        for finding in done.findings[:_MOST_TOLD]:
            logger.warning("partition %d: %s", self._partition, _describe(finding))
        if rest := done.findings[_MOST_TOLD:]:
            logger.warning(
                "partition %d: %d more of these; every gap stands in .gaps.jsonl",
                self._partition,
                sum(finding.blocks if finding.is_sum else 1 for finding in rest),
            )
        for notice in done.notices:
            logger.warning("partition %d: %s", self._partition, notice)
        if done.quarantined:
            logger.warning(
                "partition %d: %d messages that are no lines were set aside in .quarantine",
                self._partition,
                done.quarantined,
            )
        logger.debug(
            "partition %d: committed up to %d, %d lines", self._partition, done.until, done.lines
        )


def _describe(finding: Finding) -> str:
    if finding.is_sum:
        return (
            f"{finding.kind.value}: {finding.blocks} more of host {finding.host}, of {finding.end} bytes in all, the first seen "
            f"at sequence {finding.sequence}"
        )
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
