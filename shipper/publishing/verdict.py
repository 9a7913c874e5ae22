"""What a refused round means: was it stored after all, is it to be tried again, or does another agent own the subject.

Decides from what the stream holds; never asks it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.block import Origin
from shipper.publishing.agent_id import AgentId

__all__ = ["Ruling", "Stored", "Verdict", "judge", "review"]


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


def judge(seen: Sequence[Stored], last: Origin, complete: bool) -> Verdict:
    """Judge a refused round by the newest messages of its subject, oldest first.

    `last` is the origin of the round's last block. `complete` says that `seen` holds every message since the expected
    one; otherwise it holds the newest only, or nothing where all have expired.
    """
    own = AgentId.parse(last.agent)
    agents = {message.agent for message in seen}
    rivals = [agent for agent in agents if agent is not None and agent != own]
    if rivals:
        newest = max(rivals)
        fenced = own is None or newest > own
        return Verdict(Ruling.FENCED if fenced else Ruling.RECLAIM, seen[-1].sequence, newest)
    if not seen:
        return Verdict(Ruling.AGAIN)
    if any(_is_same(message.origin, last) for message in seen):
        return Verdict(Ruling.GO_ON, seen[-1].sequence)
    if seen[-1].agent is None and not complete:
        return Verdict(Ruling.LOOK_BACK, seen[-1].sequence)
    return Verdict(Ruling.AGAIN, seen[-1].sequence)


def review(seen: Sequence[Stored], last: Origin) -> Verdict:
    """Judge a round after its agent claimed all subjects of the host again: `seen` is what they got since it knew them.

    `last` is the origin of the round's last block, and `seen` ends with the claim. What an older agent stored concerns
    only who follows files as well; what cannot be read again has no identity, and no other agent could store it.
    """
    verdict = judge(seen, last, complete=True)
    if verdict.ruling is not Ruling.RECLAIM:
        return verdict
    own = AgentId.parse(last.agent)
    has_lines = any(
        message.origin is not None and message.origin.span is not None
        for message in seen
        if message.agent not in {None, own}
    )
    if has_lines and last.identity is not None:
        return Verdict(Ruling.LOST, verdict.last, verdict.rival)
    return judge([message for message in seen if message.agent == own], last, complete=True)


def _is_same(found: Origin | None, last: Origin) -> bool:
    # a round that is sent again may be cut smaller: it is the end of its last block that stays
    if found is None or found.span is None or last.span is None:
        return False
    return (found.agent, found.span.file, found.span.end) == (
        last.agent,
        last.span.file,
        last.span.end,
    )
