"""How far each source file has been received, and what a section means in that light: append, skip, trim, gap. Decides only.

The stream itself cannot hold a repeat within its day (compare-and-set); this covers what is older, and what retention
removed before it was received.
"""

from dataclasses import dataclass, replace
from enum import Enum

from broker.wire.message import Section

__all__ = ["Finding", "Judgement", "Kind", "judge"]

_LONGEST = 1024  # characters of a path in a finding: hardly a file has one that long, but any message may name it


class Kind(Enum):
    """What was found out about a section that does not simply follow its predecessor."""

    GAP = "gap"
    """Bytes of the source file between what was received and this section never came."""
    LOSS = "loss"
    """Messages of the host were removed from the stream before they were received; where the bytes of a file are known
    that never came, a gap names them as well."""
    REPEAT = "repeat"
    """The section, or its beginning, had been received before and was not written again."""
    DOUBT = "doubt"
    """The section's beginning had been received before, but which of its lines those are cannot be told, as lines were
    left out of it: it was written whole, and the lines of these bytes may stand there twice."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A gap or a repeat: the bytes `[start, end)` of a source file of a host; of a loss neither is known.

    `sequence` is the stream sequence of the message that showed it and `read_at` when that was read, `since` when
    the one before it was, both in nanoseconds since the epoch; 0 where that is not known. Repeats that follow on each other
    are one of several `blocks`, and these are of the first. What is found of many files of a host may be one as well, which
    names none of them: then `end` is how many bytes it is about in all.
    """

    kind: Kind
    host: str
    file: str
    file_id: str
    start: int
    end: int
    sequence: int
    read_at: int
    since: int = 0
    blocks: int = 1
    after: int = 0
    """Of a loss: the sequence of the host's last message before it; 0 for none."""

    @property
    def is_sum(self) -> bool:
        """Whether this is what was found of several files of a host."""
        return self.blocks > 1 and not self.file_id

    def plus(self, later: "Finding") -> "Finding":
        """Return this and a later one of the same kind and host as one, which names no file."""
        size = self.end - self.start + later.end - later.start
        return replace(
            self,
            file="",
            file_id="",
            start=0,
            end=size,
            read_at=later.read_at,
            blocks=self.blocks + later.blocks,
        )

    def then(self, later: "Finding") -> "Finding | None":
        """Return this and a later one of the same file as one, None where they are not repeats that follow on each other."""
        label = (self.kind, self.file, self.end)
        if self.kind is not Kind.REPEAT or label != (later.kind, later.file, later.start):
            return None
        return replace(self, end=later.end, blocks=self.blocks + later.blocks)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do with a section: write its lines from byte `skip` on (all skipped: nothing), and tell `finding`."""

    skip: int
    finding: Finding | None = None

    @property
    def follows(self) -> bool:
        """Whether what is written goes on where what was written of its file ends."""
        return self.finding is None or self.finding.kind is Kind.REPEAT


_WRITE_ALL = Judgement(0)


def judge(reached: int | None, section: Section, host: str, sequence: int) -> Judgement:
    """Judge a section against the end of what its file's earlier sections brought.

    `reached` is None for a file never received: any start is accepted then, as the shipper may begin at its end. What
    cannot be told apart is written rather than lost.
    """
    span = section.span
    if reached is None or span.start == reached:
        return _WRITE_ALL
    if span.start > reached:
        return Judgement(0, _finding(Kind.GAP, section, host, reached, span.start, sequence))
    if reached >= span.end:
        repeat = _finding(Kind.REPEAT, section, host, span.start, span.end, sequence)
        return Judgement(section.size, repeat)
    kind, skip = (Kind.DOUBT, 0) if section.filtered else (Kind.REPEAT, reached - span.start)
    return Judgement(skip, _finding(kind, section, host, span.start, reached, sequence))


def _finding(
    kind: Kind, section: Section, host: str, start: int, end: int, sequence: int
) -> Finding:
    path = section.path if len(section.path) <= _LONGEST else f"{section.path[:_LONGEST]}…"
    return Finding(kind, host, path, section.span.file, start, end, sequence, 0)
