"""What the users of one account may take of a server, so that one leaked secret cannot shut the others out."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most connections of all users of an account together, and the most subscriptions of each connection."""

    connections: int
    subscriptions: int
