"""How far each source file was received, and where a section does not begin there.

Values only.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum

from nats_logship.app.timestamps import to_datetime
from nats_logship.wire.message import Unit

GAP_REPORTS = ".gaps.p*.jsonl"
"""A pattern for the reports of all partitions in an output folder."""


class AnomalyKind(Enum):
    """What is wrong with the bytes that an anomaly names."""

    GAP = "gap"
    """The bytes were never received: they are before a section, and after the one before it."""
    LOSS = "loss"
    """Messages of the host were removed from the stream before they were received.

    If it is known which bytes were in them, a gap names these as well.
    """
    REPEAT = "repeat"
    """A section, or its beginning, was received before; it was not written again."""
    DOUBT = "doubt"
    """A section that cannot be divided begins before the received end; it was written whole.

    Which of its lines were received before is not known, so some may be in the file twice.
    """

    @property
    def is_gap(self) -> bool:
        """Whether lines were never received; the report of gaps and the store list these."""
        return self in {AnomalyKind.GAP, AnomalyKind.LOSS}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The range `[start, end)` of a source file of a host; of a loss neither is known.

    Moments are in nanoseconds since the epoch; 0 if not known.
    """

    kind: AnomalyKind
    host: str
    file: str
    file_id: str
    start: int
    end: int
    sequence: int  # of the message at which it was noticed
    read_at: int  # when the shipper read its lines; of a loss when the broker stored it
    since: int = 0  # the same of the message before
    after: int = 0  # of a loss: the sequence of the host's last message before
    unit: Unit = "bytes"  # what the range counts

    @property
    def size(self) -> int:
        """How many of `unit` the range has."""
        return self.end - self.start

    def as_row(self) -> dict[str, object]:
        """Return what the report and the store say of a gap, by field."""
        moments = {"since": _format(self.since), "until": _format(self.read_at)}
        fields = asdict(self) | {"kind": self.kind.value} | moments
        del fields["read_at"]
        return {**fields, self.unit: self.size}


def _format(moment: int) -> str | None:
    if not 0 < moment < 2**62:
        return None
    return to_datetime(moment).isoformat(timespec="milliseconds")


def name_gap_report(partition: int) -> str:
    """Return the name of a partition's report in the output folder."""
    return GAP_REPORTS.replace("*", str(partition))


def format_gaps(gaps: Iterable[Anomaly], partition: int) -> bytes:
    """Return the lines of the report: an object of JSON for each gap."""
    rows = ({**gap.as_row(), "partition": partition} for gap in gaps)
    return "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows).encode()


class SpanEnds(dict[tuple[str, str], tuple[int, int]]):
    """By host and source file: the end of what was received, and when that was read.

    The end is a position, the moment in nanoseconds since the epoch; (-1, 0) if not known. The file
    `""` of a host has the sequence of its last message, and the host `""` the sequence up to which
    messages of unknown hosts may have been received.
    """

    def __missing__(self, key: tuple[str, str]) -> tuple[int, int]:
        return -1, 0
