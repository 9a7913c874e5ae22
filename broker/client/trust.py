"""Whether to stay with the server that one is connected to, or to try another one: decided by what it answers. Asks nobody.

A server that was cut off from the others of its cluster lets clients in and takes what they send; nothing comes of it.
"""

from collections.abc import Iterator, Sequence

from broker.client.answer import ConnectionLost, Rejected

__all__ = ["CONNECT_TIMEOUT", "Trust", "attempts", "is_cut_off"]

CONNECT_TIMEOUT = 3
"""Seconds for each step of a connect."""
_HASTE = 1  # the same while there are others to try

_MOST_SILENCE = 4.5  # seconds in all for which answers were waited for in vain; until then it may not know who died
_MOST_REFUSALS = (
    12.0  # seconds for which it has said that nobody leads; elections take four to nine
)


class Trust:
    """What has come of the questions since the last one that was answered by somebody who leads."""

    def __init__(self) -> None:
        """Begin without a doubt."""
        self._silence = 0.0
        self._refused: float | None = None

    def is_lost(self, error: ConnectionLost | Rejected | None, seconds: float, now: float) -> bool:
        """Take note of how a question ended that was asked `seconds` before `now`; True when it is time to leave."""
        match error:
            case ConnectionLost():
                self._silence += seconds
            case Rejected() if error.is_leaderless:
                self._refused = now if self._refused is None else self._refused
            case Rejected() if error.is_wrong_sequence or error.is_write_under_way:
                pass  # says so as well that leads nobody any more, and has our own write in hand
            case _:
                self._silence, self._refused = 0.0, None
        waited = 0.0 if self._refused is None else now - self._refused
        return self._silence >= _MOST_SILENCE or waited >= _MOST_REFUSALS


def is_cut_off(known: int, most: int) -> bool:
    """Whether a server that knows so many addresses of its cluster, once `most`, is no longer among the majority."""
    return 2 * known < most


def attempts(shuffled: Sequence[str], last: str, slow: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Give servers in the order to try them, with the seconds for each step: the one that we had `last` comes last.

    One that stands still takes a connection and says nothing. So where there are several each gets little time at first;
    those that `slow` has in the end, put there by the caller meanwhile, get theirs then.
    """
    if len(set(shuffled)) == 1:
        yield shuffled[0], CONNECT_TIMEOUT
        return
    for server in sorted(shuffled, key=lambda server: server == last):
        yield server, _HASTE
    for server in tuple(slow):
        yield server, CONNECT_TIMEOUT
