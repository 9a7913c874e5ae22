"""The messages of the own host as the stream has them, who wrote them, and what they say of positions. Never asks the stream."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from broker.app.exits import FencedError
from broker.wire.message import Origin
from broker.wire.positions import Covered, Positions

__all__ = ["AgentId", "HostMessage", "Rebuilt", "fenced_by"]

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
        """Return an id above the last one, though the clock (milliseconds) may have been set back."""
        return cls(max(now, last.start + 1 if last else 0), tag)


@dataclass(frozen=True, slots=True)
class HostMessage:
    """A message of the host as the stream has it; `origin` is None where another client wrote it."""

    sequence: int
    origin: Origin | None
    subject: str
    stream: str
    stored_at: int = 0  # in nanoseconds since the epoch, 0 where that was not asked

    @property
    def agent(self) -> AgentId | None:
        """The agent that wrote it; None for any other client."""
        return AgentId.parse(self.origin.agent) if self.origin else None

    @property
    def covered(self) -> Covered:
        """Return what positions cover that end with this message."""
        return Covered(self.sequence, self.origin.agent if self.origin else "")


def fenced_by(rival: AgentId | None, subject: str) -> FencedError:
    """Return the error of an agent that another one has taken over from."""
    return FencedError(
        f"agent {rival} ships for the same host since then ({subject}); "
        "this one ends: run one shipper per host, or give each its own --host"
    )


class Rebuilt:
    """Positions as the stream has them, and who else wrote to the host's subjects behind those that were known.

    `last` is the last sequence of each subject; `others` are the last message of each writer but `agent`, by its name, which
    is empty for whoever wrote without our headers. `began` is when the first message of `agent` itself was stored, in
    nanoseconds since the epoch, 0 for none.
    """

    def __init__(self, known: Positions, agent: str = "") -> None:
        """Begin at the positions that are known."""
        self.positions = known
        self.last: dict[str, int] = {}
        self.others: dict[str, HostMessage] = {}
        self.began = 0
        self._agent = agent

    def take(self, page: Sequence[HostMessage]) -> None:
        """Go on behind messages that follow those that were taken of their stream."""
        ours = [message for message in page if message.origin is not None]
        if ours:
            origins = [message.origin for message in ours if message.origin is not None]
            self.positions = self.positions.advance(origins, ours[-1].sequence, ours[-1].stream)
        for message in page:
            self.last[message.subject] = message.sequence
            writer = message.origin.agent if message.origin else ""
            if writer != self._agent:
                self.others[writer] = message
            elif writer:
                self.began = min(self.began or message.stored_at, message.stored_at)
