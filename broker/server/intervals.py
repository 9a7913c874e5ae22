"""Sets the shortest interval between two small rounds of a host, by the rounds of all hosts.

A round costs broker and receiver about the same with one line as with a hundred. So if the hosts
together send more than `--rounds` a second, each one gathers its lines for longer.

Every ten seconds `decide_interval` compares the rate with that limit. Hosts that write all the time
send a round per interval, so the rate goes down as the interval goes up. A longer interval is in
force at once, a shorter one after a minute of fewer rounds, and it is at least half.

In a cluster each broker measures, and the one beside the leader of the first stream writes, by
compare-and-set. If it dies, hosts keep the interval for three minutes, or longer while they have no
connection; the next leader, and a broker that comes back, go on from the entry.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.server.context import ServerContext
from nats_logship.app.timestamps import SECOND, parse_time
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import read_interval
from nats_logship.wire.interval import INTERVAL_KEY, INTERVAL_RENEWED, format_interval
from nats_logship.wire.restored import is_being_restored
from nats_logship.wire.streams import CONFIG_BUCKET

_SAMPLE_EVERY = 10.0  # seconds
_FIRST_SAMPLE = 1.0  # seconds, in which retention has asked for the streams
_OWN, _LEAST = 0.2, 0.02  # seconds between rounds that shippers choose themselves, by their lines
_UP, _DOWN = 1.25, 0.75  # smaller changes are not worth a write
_CALM_SAMPLES = 6  # before the interval becomes shorter: many programs write once a minute
_STEP_DOWN = 0.5
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Load:
    """What all hosts sent in the last seconds: their rounds per second, and how many hosts."""

    rate: float
    hosts: int


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """The wanted rounds per second of all hosts, 0 without a limit; the longest interval, s."""

    rounds: int
    longest: float


@dataclass(frozen=True, slots=True)
class IntervalState:
    """The interval in force, in seconds; 0 for none.

    The last `calm` samples asked for less, at most for `calm_seconds`.
    """

    seconds: float = 0.0
    calm: int = 0
    calm_seconds: float = 0.0


def decide_interval(state: IntervalState, load: Load, limits: RoundLimits) -> IntervalState:
    """Return the state after a sample; a changed `seconds` is what hosts must be sent."""
    if not limits.rounds:
        return IntervalState()
    wanted, seconds = _compute_wanted(state.seconds, load, limits), state.seconds
    if wanted > seconds * _UP:
        return IntervalState(wanted)
    if wanted >= seconds * _DOWN:
        return IntervalState(seconds)
    calm, calm_seconds = state.calm + 1, max(state.calm_seconds, wanted)
    if calm < _CALM_SAMPLES:
        return IntervalState(seconds, calm, calm_seconds)
    return IntervalState(_settle(max(calm_seconds, seconds * _STEP_DOWN)))


def _compute_wanted(seconds: float, load: Load, limits: RoundLimits) -> float:
    """Return the interval at which these hosts would send the wanted rounds.

    If each of them sent all the time, hosts / rounds would do: so a few clients that publish
    without an interval do not slow all others down.
    """
    if not seconds and load.rate <= limits.rounds:
        return 0.0
    by_rate = (seconds or _OWN) * load.rate / limits.rounds
    return _settle(min(by_rate, load.hosts / limits.rounds, limits.longest))


def _settle(seconds: float) -> float:
    """Return an interval to the millisecond; 0 for one that shippers keep anyway."""
    return round(seconds, 3) if seconds >= _LEAST else 0.0


Ends = Mapping[tuple[str, str], tuple[int, int]]
"""The last sequence of each stream, by name and time of creation, and the nanoseconds of it."""


def compute_rate(before: Ends, after: Ends) -> float | None:
    """Return the rounds per second between two samples.

    None if a stream was created or restored between them, or was not asked again.
    """
    rate = 0.0
    for stream, (now, end) in after.items():
        then, start = before.get(stream, (now, end))
        if now <= then or end < start:
            return None
        rate += (end - start) * SECOND / (now - then)
    return rate


async def keep_interval(context: ServerContext) -> None:
    """Measure the rounds of a broker that is ready, and set the interval, until cancelled."""
    keeper, trouble = _Keeper(context), ""
    await asyncio.sleep(_FIRST_SAMPLE)
    while True:
        try:
            await keeper.step()
            trouble = ""
        except (ConnectionLost, Rejected) as error:
            if trouble != (trouble := str(error)):
                logger.warning("cannot set the interval of rounds: %s; tries again", error)
        await asyncio.sleep(_SAMPLE_EVERY)


class _Keeper:
    """Measures, decides and writes."""

    def __init__(self, context: ServerContext) -> None:
        self._context, self._connection = context, context.connection
        self._ends: Ends = {}
        self._state = IntervalState()

    async def step(self) -> None:
        """Measure the rate, and write the interval if this broker sets it.

        Raises `Rejected`, `ConnectionLost`.
        """
        context = self._context
        infos = [context.infos.get(name) for name in context.conf.topology.names]
        known = [info for info in infos if info and _takes_rounds(info["config"])]
        if len(known) < len(infos):
            self._ends, context.rounds_per_second = {}, None
            return
        load = self._measure(known)
        context.rounds_per_second = load.rate if load else None
        if context.leads(known[0]):
            await self._set(load, parse_time(known[0]["ts"]))

    def _measure(self, infos: Sequence[Mapping[str, Any]]) -> Load | None:
        before, self._ends = self._ends, dict(map(_read_end, infos))
        rate = compute_rate(before, self._ends)
        hosts = sum(int(info["state"].get("num_subjects", 0)) for info in infos)
        return None if rate is None else Load(rate, hosts)

    async def _set(self, load: Load | None, now: int) -> None:
        """Write a changed interval, and each minute one in force; `now` is the broker's clock."""
        entry = await read_interval(self._connection)
        if (before := entry.seconds or 0.0) != self._state.seconds:
            self._state = IntervalState(before)
        settings = self._context.settings
        limits = RoundLimits(settings.rounds, settings.longest_interval.total_seconds())
        if load or not limits.rounds:
            self._state = decide_interval(self._state, load or Load(0.0, 0), limits)
        seconds = self._state.seconds
        is_due = seconds and entry.age(now) > INTERVAL_RENEWED - _SAMPLE_EVERY / 2
        if seconds == entry.seconds and not is_due:
            return
        value, revision = format_interval(seconds), entry.revision
        try:
            await bucket.write(self._connection, CONFIG_BUCKET, INTERVAL_KEY, value, revision)
        except bucket.Conflict:  # the next step goes on from what another broker has written
            return
        if seconds != before:
            rate = f"{load.rate:.0f} rounds a second; " if load else ""
            logger.info("%sasks hosts for at least %g s between two rounds", rate, seconds)


def _read_end(info: Mapping[str, Any]) -> tuple[tuple[str, str], tuple[int, int]]:
    return (info["config"]["name"], info["created"]), (
        parse_time(info["ts"]),
        int(info["state"]["last_seq"]),
    )


def _takes_rounds(config: Mapping[str, Any]) -> bool:
    """Whether hosts publish to the stream: neither a mirror nor an archive that is restored."""
    return not config.get("mirror") and not is_being_restored(config)
