"""A message of the stream as it is stored there. A value; needs nothing that executors may not have."""

from dataclasses import dataclass

__all__ = ["Stored"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of the stream; `time` is when it was stored, UTC, as the broker writes it."""

    sequence: int
    time: str
    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def header_size(self) -> int:
        """Return how many characters the names and values of its headers have: any message may have many, of any length."""
        return sum(len(name) + len(value) for name, value in self.headers.items())
