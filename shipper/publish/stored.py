"""Messages of the own host as the stream has them, who wrote them, and what a refused round means by them.

Decides from what the stream holds; never asks it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.wire.message import Origin

__all__ = ["AgentId", "Ruling", "Stored", "Verdict", "judge", "review"]

_FORM = re.compile(r"([0-9]{1,15})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, order=True)
class AgentId:
    """When a run started, in milliseconds since the epoch, and eight random hex digits that settle a tie."""

    start: int
    tag: str

    def __str__(self) -> str:
        return f"{self.start}-{self.tag}"

    @classmethod
    def parse(cls, text: str) -> "AgentId | None":
        """Read what `str()` made; None for anything else, which no shipper of ours wrote."""
        found = _FORM.fullmatch(text)
        return cls(int(found[1]), found[2]) if found else None

    @classmethod
    def following(cls, last: "AgentId | None", now: int, tag: str) -> "AgentId":
        """Return an id above the subject's last one, though the clock (milliseconds) may have been set back."""
        return cls(max(now, last.start + 1 if last else 0), tag)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of the own host as the stream has it; `origin` is None where another client wrote it."""

    sequence: int
    origin: Origin | None
    subject: str = ""

    @property
    def agent(self) -> AgentId | None:
        """The agent that wrote it; None for any other client."""
        return AgentId.parse(self.origin.agent) if self.origin else None


class Ruling(Enum):
    """What to do about a round that was refused for a wrong last sequence."""

    GO_ON = auto()  # it was stored
    AGAIN = auto()  # it was not
    RECLAIM = auto()  # an older agent came late: claim again
    LOST = auto()  # it stored lines as well, so positions are to be rebuilt
    FENCED = auto()  # a newer agent owns the subject
    LOOK_BACK = auto()  # somebody else wrote last; only the messages before can tell


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling, the sequence that is now the last of the subject (0: none), and whose message decided it."""

    ruling: Ruling
    last: int = 0
    rival: AgentId | None = None


def judge(seen: Sequence[Stored], sent: Origin, complete: bool) -> Verdict:
    """Judge a refused round by the newest messages of its subject, oldest first.

    `sent` is the origin of the round. `complete` says that `seen` holds every message since the expected
    one; otherwise it holds the newest only, or nothing where all have expired.
    """
    own = AgentId.parse(sent.agent)
    agents = {message.agent for message in seen}
    rivals = [agent for agent in agents if agent is not None and agent != own]
    if rivals:
        newest = max(rivals)
        fenced = own is None or newest > own
        return Verdict(Ruling.FENCED if fenced else Ruling.RECLAIM, seen[-1].sequence, newest)
    if not seen:
        return Verdict(Ruling.AGAIN)
    if any(_covers(message.origin, sent) for message in seen):
        return Verdict(Ruling.GO_ON, seen[-1].sequence)
    if seen[-1].agent is None and not complete:
        return Verdict(Ruling.LOOK_BACK, seen[-1].sequence)
    return Verdict(Ruling.AGAIN, seen[-1].sequence)


def review(seen: Sequence[Stored], sent: Origin) -> Verdict:
    """Judge a round after its agent claimed all subjects of the host again: `seen` is what they got since it knew them.

    `sent` is the origin of the round, and `seen` ends with the claim. Lines that an older agent stored may be those of the
    round: then positions are to be rebuilt.
    """
    verdict = judge(seen, sent, complete=True)
    if verdict.ruling is not Ruling.RECLAIM:
        return verdict
    own = AgentId.parse(sent.agent)
    has_lines = any(
        message.origin is not None and not message.origin.is_claim
        for message in seen
        if message.agent not in {None, own}
    )
    if has_lines:
        return Verdict(Ruling.LOST, verdict.last, verdict.rival)
    return judge([message for message in seen if message.agent == own], sent, complete=True)


def _covers(found: Origin | None, sent: Origin) -> bool:
    # a round that is sent again may be divided: no file's bytes of one agent come before those it published
    if found is None or found.agent != sent.agent:
        return False
    last = sent.sections[-1].span
    return any(one.span.file == last.file and one.span.end >= last.end for one in found.sections)
