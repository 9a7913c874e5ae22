"""The id of one run of the shipper, ordered by its start: the newest owns its host's subject."""

import re
from dataclasses import dataclass

__all__ = ["AgentId"]

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
