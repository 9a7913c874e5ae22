"""The keeper of the stream's room: looks how full it is, and makes room before hosts have to wait. The wiring.

Received lines go first, and only as many as must. What no receiver has goes only with `drop-oldest`, by name. In a
cluster only the broker beside the stream's leader acts; two at once, after a change of leaders, do no harm.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.keeping.room_asking import State, ask
from broker.keeping.room_disk import Disk
from broker.keeping.room_dropped import iso
from broker.keeping.room_expiry import ask_expiring, pause_of
from broker.keeping.room_guard import DiskGuard
from broker.keeping.room_making import Making
from broker.keeping.room_marks import Amount, Bounds, Marks, Shortage, look_again_after, shortage
from broker.keeping.room_report import RoomReport
from broker.keeping.room_words import Speaker
from broker.wire.descent import is_being_restored
from broker.wire.streams import STREAM

__all__ = ["OnFull", "Policy", "RoomKeeper"]

_AWAY, _ELSEWHERE = 1.0, 2.0  # seconds until the next look: no answer, another broker's turn
_SHARE = 2  # a look through the stream that found too little may take a third of the time
logger = logging.getLogger(__name__)


class OnFull(Enum):
    """What gives way when nothing received is left."""

    BACKPRESSURE = "backpressure"
    DROP_OLDEST = "drop-oldest"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the keeper goes by."""

    on_full: OnFull = OnFull.BACKPRESSURE
    marks: Marks = Marks()  # noqa: RUF009 - a frozen value


@dataclass(frozen=True, slots=True)
class _Seen:
    """The stream as a look found it; `purged` is how many messages the keeper had purged by then."""

    created: str
    messages: int
    last: int
    purged: int

    @classmethod
    def of(cls, info: Mapping[str, Any], purged: int) -> "_Seen":
        state = info["state"]
        return cls(info["created"], int(state["messages"]), int(state["last_seq"]), purged)

    def removed_since(self, before: "_Seen") -> int:
        """Return how many messages others than the keeper have removed since an earlier look."""
        if self.created != before.created:
            return 0
        gone = before.messages + (self.last - before.last) - self.messages
        return max(gone - (self.purged - before.purged), 0)


class RoomKeeper:
    """The keeper; `report` is what it has done so far."""

    def __init__(
        self,
        connection: Connection,
        folder: Path,
        name: str,
        policy: Callable[[], Policy],
        clock: Callable[[], int],
        disk: Callable[[], Disk | None] = lambda: None,
    ) -> None:
        """Do nothing yet. `name` is the own server's; `folder` the store's; `clock` tells nanoseconds since the epoch.

        `policy` is asked before each look, as settings may be read again; `disk` measures the store's disk, None where nothing of it is to stay free.
        """
        self._ask_policy = policy
        self._policy = policy()
        self.report = RoomReport(self._policy.on_full.value)
        self._connection = connection
        self._name = name
        self._clock = clock
        self._making = Making(connection, folder, clock)
        self._guard = DiskGuard(connection, disk)
        self._speaker = Speaker()
        self._barren: object = None
        self._rest_until = 0.0
        self._before: _Seen | None = None
        self._purged_before = 0
        self._expiry_due = 0.0
        self._is_troubled, self._said = False, ""

    async def run(self) -> None:
        """Keep room until cancelled."""
        while True:
            pause = await self.look()
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Look once, do what is to be done, and return the seconds until the next look; a broker away is no error."""
        try:
            pause = await self._look()
        except (ConnectionLost, Rejected, OSError) as error:
            # once is no news: so it is for a moment when nats-server reads its accounts again, and when it ends
            if self._is_troubled and str(error) != self._said:
                logger.warning("the stream's room cannot be looked after: %s", error)
                self._said = str(error)
            self._is_troubled = True
            return _AWAY
        self._is_troubled, self._said = False, ""
        return pause

    async def _look(self) -> float:
        self._policy = self._ask_policy()
        info = await self._connection.api(f"STREAM.INFO.{STREAM}")
        is_keeper = self._is_at_home(info.get("cluster") or {})
        if is_being_restored(info["config"]):
            return _ELSEWHERE  # the offsets that go with it may still be those of before
        await self._making.settle()  # also what this one announced when it was the keeper
        self.report = replace(self.report, is_keeper=is_keeper, on_full=self._policy.on_full.value)
        if not is_keeper:
            self.report = replace(
                self.report, short_since=None, waits=False, loses_oldest=False, nearest=None
            )
            self._guard.rest()
            return _ELSEWHERE
        await self._look_for_expiring(info)
        held, bounds = Amount.held(info), await self._guard.attend(info)
        short = shortage(held, bounds, self._policy.marks).at_least(self._guard.missing)
        if short:
            if self.report.short_since is None:
                self.report = replace(self.report, short_since=iso(self._clock()))
            self._speaker.making(held, bounds)
            await self._make_room(info, short)
        elif self.report.short_since is not None:
            self.report = replace(self.report, short_since=None, waits=False, loses_oldest=False)
            self._speaker.has_room()
        self._count_removed(info)
        return look_again_after(held, bounds, self._policy.marks)

    def _count_removed(self, info: Mapping[str, Any]) -> None:
        """Count what nats-server has removed since the look before, where only lines are left that no receiver has."""
        before, self._before = self._before, _Seen.of(info, self._purged_before)
        self._purged_before = self.report.purged_messages
        removed = self._before.removed_since(before) if before else 0
        if self.report.loses_oldest and removed:
            self.report = replace(
                self.report,
                dropped_messages=self.report.dropped_messages + removed,
                dropped_since=self.report.dropped_since or iso(self._clock()),
            )

    def _is_at_home(self, cluster: Mapping[str, Any]) -> bool:
        # a server on its own has no name of a cluster, and is the leader of all that it holds
        return not cluster.get("name") or cluster.get("leader") == self._name

    async def _look_for_expiring(self, info: Mapping[str, Any]) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._expiry_due:
            return
        self._expiry_due = now + pause_of(info)
        found = await ask_expiring(self._connection, info, self._clock())
        self._speaker.expiring(found, self._clock())
        self.report = replace(self.report, nearest=found[0] if found else None)

    async def _make_room(self, info: Mapping[str, Any], short: Shortage) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        if began < self._rest_until:
            return
        state = await ask(self._connection, info)
        if self._barren == _signs(info, state, self._policy):
            return  # nothing has changed since there was nothing to take
        goes_on = await self._take(info, state, short)
        removes_oldest = info["config"].get("discard") == "old"
        self.report = replace(
            self.report, waits=not goes_on, loses_oldest=removes_oldest and not goes_on
        )
        if goes_on:
            self._barren = None
            return
        self._barren = _signs(info, state, self._policy)
        self._rest_until = clock() + _SHARE * (clock() - began)
        if removes_oldest:
            self._speaker.loses_oldest(state.behind)
        else:
            self._speaker.waits(state.behind, self._may_drop)

    @property
    def _may_drop(self) -> bool:
        # files of the server become smaller by and by, not with each message that goes: for the sake of the disk
        # much more would be dropped than must
        return self._policy.on_full is OnFull.DROP_OLDEST and not self._guard.missing

    async def _take(self, info: Mapping[str, Any], state: State, short: Shortage) -> bool:
        """Take what is received, and drop lines only where nothing of it is left; return whether that got anywhere."""
        spare = await self._making.purge(info, state.received, short.to_low)
        self._purged(spare.amount)
        if spare.amount.covers(short.to_high) or not spare.is_all:
            return True
        if not self._may_drop:
            return False
        return await self._drop(info, state)

    async def _look_again(self, info: Mapping[str, Any]) -> tuple[Mapping[str, Any], Shortage]:
        """Return the stream as it is now, and what is short in it: nothing where it was made anew since `info`."""
        now = await self._connection.api(f"STREAM.INFO.{STREAM}")
        if now["created"] != info["created"]:
            return now, Shortage(Amount(), Amount())
        return now, shortage(Amount.held(now), Bounds.of(now), self._policy.marks)

    def _purged(self, gone: Amount) -> None:
        self._speaker.purged(gone)
        self.report = replace(
            self.report,
            purged_messages=self.report.purged_messages + gone.messages,
            purged_bytes=self.report.purged_bytes + gone.size,
        )

    async def _drop(self, info: Mapping[str, Any], state: State) -> bool:
        # another keeper may have taken some meanwhile: the stream knows
        now, left = await self._look_again(info)
        if not left:
            return True
        drop = await self._making.drop(now, state.received, left.to_high)
        self._purged(drop.purged)
        self._speaker.dropped(drop.ranges)
        since = self.report.dropped_since or (iso(self._clock()) if drop.ranges else None)
        self.report = replace(
            self.report,
            dropped_messages=self.report.dropped_messages + drop.amount.messages,
            dropped_bytes=self.report.dropped_bytes + drop.amount.size,
            dropped_since=since,
        )
        return bool(drop.ranges) or bool(drop.purged.messages)


def _signs(info: Mapping[str, Any], state: State, policy: Policy) -> object:
    """Return what compares equal as long as there is nothing new to be taken."""
    can_drop = policy.on_full is OnFull.DROP_OLDEST
    return info["created"], state.received, policy, info["state"]["last_seq"] if can_drop else 0
