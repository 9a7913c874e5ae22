"""How a partition is followed: how large batches are, how long tasks stay, and when it is over. A value."""

from dataclasses import dataclass

from receiver.consume.assignment import Stay

__all__ = ["Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How large batches are, `limit` and `pull` in bytes, and how long tasks stay.

    With `once` a follower ends when nothing is left. A task that has not reported `patience` seconds after its time is
    told of.
    """

    limit: int
    pull: int
    stay: Stay
    once: bool
    patience: float = 60.0

    @property
    def overdue(self) -> float:
        """Seconds after which a task that has not reported is a matter of concern."""
        return self.stay.longest + self.patience
