"""The same rounds and pulls through several brokers in turn, the first of a run the last of the next one.

Each begins with an empty stream, a quiet server and nothing left to be written to the disk.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bench.contenders import Contender
from bench.cpu import cpu_seconds, process_seconds, quiet_after, user_and_system
from bench.pulls import pull
from bench.rounds import Publisher, Rounds

__all__ = ["Taken", "What", "contest"]

_QUIET = 0.02  # CPU seconds, in this many seconds:
_QUIET_FOR = 0.1


class What(Enum):
    """What is measured."""

    PUBLISH = "publish"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Taken:
    """What `size` bytes in so many rounds took: seconds, and CPU seconds of nats-server.

    `user` and `system` are the parts of these, in ticks of the kernel; `beside` is what runs nats-server has used.
    """

    who: str
    case: str
    what: What
    size: int
    rounds: int
    seconds: float
    cpu: float
    user: float
    system: float
    beside: float

    @property
    def rate(self) -> float:
        """MB (1e6 bytes) per second."""
        return self.size / 1e6 / self.seconds

    @property
    def per_gb(self) -> float:
        """CPU seconds per GB (1e9 bytes)."""
        return self.cpu / self.size * 1e9

    @property
    def beside_per_gb(self) -> float:
        """CPU seconds per GB of what runs nats-server."""
        return self.beside / self.size * 1e9

    @property
    def milliseconds(self) -> float:
        """The length of a round, or of a round of every host that takes part."""
        return self.seconds * 1000 / self.rounds


class _Clock:
    """Runs from its making until it is asked what was taken since."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._all = cpu_seconds(contender.process)
        self._parts = user_and_system(contender.pid)
        self._own = process_seconds(contender.pid)
        self._began = time.monotonic()

    def taken(self, rounds: Rounds, what: What, turns: int) -> Taken:
        seconds = time.monotonic() - self._began
        own = process_seconds(self._contender.pid) - self._own
        user, system = user_and_system(self._contender.pid)
        user, system = user - self._parts[0], system - self._parts[1]
        beside = cpu_seconds(self._contender.process) - self._all - user - system
        return Taken(
            who=self._contender.name,
            case=rounds.name,
            what=what,
            size=turns * rounds.turn,
            rounds=turns,
            seconds=seconds,
            cpu=own,
            user=user,
            system=system,
            beside=max(0.0, beside),
        )


def contest(
    contenders: Sequence[Contender],
    cases: Sequence[Rounds],
    size: int,
    runs: int,
    *asked: What,
) -> list[Taken]:
    """Measure `runs` times what is asked with about `size` bytes of each case; pulls take what was published."""
    found = []
    for run in range(runs):
        first = run % len(contenders)
        for rounds in cases:
            for contender in (*contenders[first:], *contenders[:first]):
                found += _measure(contender, rounds, rounds.turns(size), asked)
    return found


def _measure(
    contender: Contender, rounds: Rounds, turns: int, asked: Sequence[What]
) -> list[Taken]:
    asyncio.run(contender.empty())
    _settle(contender)
    taken = [_publish(contender, rounds, turns)]
    if What.PULL in asked:
        taken.append(asyncio.run(_pull(contender, rounds, turns)))
    return [one for one in taken if one.what in asked]


def _settle(contender: Contender) -> None:
    os.sync()  # what was left to be written is no part of what comes
    quiet_after(contender.process, _QUIET, _QUIET_FOR)


def _publish(contender: Contender, rounds: Rounds, turns: int) -> Taken:
    with Publisher(contender.port, rounds) as publisher:
        clock = _Clock(contender)
        publisher.publish(turns)
        return clock.taken(rounds, What.PUBLISH, turns)


async def _pull(contender: Contender, rounds: Rounds, turns: int) -> Taken:
    async with contender.connected() as connection:
        clock = _Clock(contender)
        size = await pull(connection, turns * rounds.hosts)
        taken = clock.taken(rounds, What.PULL, turns)
    if size != taken.size:
        raise RuntimeError(f"{taken.size} bytes were published, and {size} pulled")
    return taken
