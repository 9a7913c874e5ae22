"""The retention worker: looks how full each stream is, and purges what every receiver has committed, oldest first.

From the high-water mark on, down to the low-water mark, a stream is purged by sequence: that costs nats-server next to
nothing, while a purge of a subject reads the whole stream. So the first message that a receiver still needs ends it; what
is to be done then is the stream's discard policy: hosts wait (new), or the oldest lines go (old). Several streams keep
partitions from waiting for each other.

Before messages go, the snapshots of their hosts are completed (`completing`). A purge that was done is done again without
harm, so whoever dies here leaves nothing to be mended. In a cluster only the broker beside the stream's leader acts.
"""

import asyncio
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from broker.app.exits import OperatorError
from broker.app.units import format_size
from broker.client.config import existing_partitions
from broker.client.connection import ConnectionLost, Rejected
from broker.report import SpaceReport
from broker.retention.committed import needed
from broker.retention.completing import complete_snapshots
from broker.server.context import ServerContext
from broker.server.resolve import own_name, space_kept_free
from broker.wire.descent import is_being_restored
from broker.wire.streams import MAX_PAYLOAD, stream_of

__all__ = ["excess", "retain"]

_OFTEN, _SELDOM = 0.1, 0.5  # seconds between looks, the first while something is purged
_SHARE = 3  # how many times as long as a purge the pause behind it is
_PATIENCE = 60.0  # seconds for a purge
_OK, _PURGING = "ok", "purging"
_HIGH, _LOW = 90, 80  # percent of a limit: from when on, and down to which, messages are purged
_ROUND_BYTES = 2 * MAX_PAYLOAD  # what a host or two may publish between two looks
_ROUND_MESSAGES = 2000
_FULL = {"new": "hosts wait", "old": "oldest lines are dropped"}
logger = logging.getLogger(__name__)


def excess(info: Mapping[str, Any], missing: int = 0) -> float:
    """Return the share of a stream that has to go, from 0 to 1: 0 below the high-water mark, else down to the low-water mark.

    `info` is the answer to STREAM.INFO; `missing` is how many bytes the disk has less than it should.
    """
    state, config = info["state"], info["config"]
    size = int(state["bytes"])
    return min(
        max(
            _above(size, int(config.get("max_bytes", -1)), _ROUND_BYTES),
            _above(int(state["messages"]), int(config.get("max_msgs", -1)), _ROUND_MESSAGES),
            missing / size if size else 0.0,
        ),
        1.0,
    )


def _above(held: int, limit: int, round_: int) -> float:
    """Return the share of `held` to remove, where it is above the high-water mark.

    Below a small limit the mark leaves space for a round: a round that is refused whole would wait for ever.
    """
    if limit <= 0 or held <= 0:
        return 0.0
    high = min(limit * _HIGH // 100, limit - min(round_, limit // 2))
    return (held - high * _LOW // _HIGH) / held if held >= high else 0.0


class StreamRetention:
    """The worker of one broker."""

    def __init__(self, context: ServerContext) -> None:
        """Do nothing yet."""
        self._context, self._connection = context, context.connection
        self._spaces: dict[str, SpaceReport] = {}
        self._troubles: dict[str, str] = {}

    @property
    def _streams(self) -> Sequence[str]:
        return self._context.resolved.topology.names

    def _missing(self) -> int:
        """Return how many bytes the disk has less than should stay free, once half of that is used up."""
        settings = self._context.settings
        if settings.max_store is not None and settings.reserve is None:
            return 0  # a person has said how much the store may take, and nothing else
        disk = shutil.disk_usage(self._context.folder)
        reserve = space_kept_free(settings, disk.total)
        return reserve - disk.free if disk.free < reserve // 2 else 0

    def as_json(self) -> dict[str, Any]:
        """Return what is reported, by stream; the keys stay."""
        return {name: space.model_dump(mode="json") for name, space in self._spaces.items()}

    async def look(self) -> float:
        """Look at each stream once, and return the seconds until the next look; a broker that is away is no error."""
        return min([await self._try(stream) for stream in self._streams])

    async def _try(self, stream: str) -> float:
        """Look at a stream; one that has no leader, for example, keeps no other one waiting."""
        before = self._troubles.pop(stream, "")
        try:
            return await self._look(stream)
        except (ConnectionLost, Rejected, OperatorError, OSError) as error:
            # once is no news: so it is while nats-server reads its accounts again, and when it ends
            if before and before != str(error):
                logger.warning("retention cannot look at stream %s: %s", stream, error)
            self._troubles[stream] = str(error)
            return _SELDOM

    async def _look(self, stream: str) -> float:
        began = asyncio.get_running_loop().time()
        info = await self._connection.api(f"STREAM.INFO.{stream}")
        cluster = info.get("cluster") or {}
        # a server on its own has no name of a cluster, and is the leader of all that it holds
        leads = not cluster.get("name") or cluster.get("leader") == own_name(self._context.settings)
        if not leads or is_being_restored(info["config"]):
            self._enter(stream, _OK)
            return _SELDOM
        share = excess(info, self._missing())
        if not share:
            self._enter(stream, _OK)
            return _SELDOM
        await self._purge(info, share)
        return max(_OFTEN, _SHARE * (asyncio.get_running_loop().time() - began))

    async def _purge(self, info: Mapping[str, Any], share: float) -> None:
        """Purge about a share of a stream, as far as receivers have it."""
        state, stream = info["state"], info["config"]["name"]
        first, end = int(state["first_seq"]), int(state["last_seq"]) + 1
        count = len(self._streams)
        existing = range(await existing_partitions(self._connection))
        partitions = [n for n in existing if stream_of(n, count) == stream]
        wants = await needed(self._connection, info, partitions)
        until = min([first + math.ceil(share * (end - first)), *wants.values()])
        if until <= first:
            self._blocked(info, wants)
            return
        if not info["config"].get("mirror"):  # the snapshots there are another site's
            await complete_snapshots(self._connection, stream, until)
        now = await self._connection.api(f"STREAM.INFO.{stream}")
        if now["created"] != info["created"]:
            return  # it was made anew, and the same numbers are other messages
        answer = await self._connection.api(
            f"STREAM.PURGE.{stream}", {"seq": until}, patience=_PATIENCE
        )
        left = await self._connection.api(f"STREAM.INFO.{stream}")
        if self._spaces.get(stream, SpaceReport(state=_OK)).state == _OK:
            logger.info(
                "stream %s holds %s in %d messages: purging what every receiver has committed, oldest first",
                *(stream, format_size(int(state["bytes"])), state["messages"]),
            )
        self._enter(stream, _PURGING)
        space = self._spaces[stream]
        space.purged_messages += int(answer["purged"])
        space.purged_bytes += max(int(now["state"]["bytes"]) - int(left["state"]["bytes"]), 0)

    def _blocked(self, info: Mapping[str, Any], wants: Mapping[str, int]) -> None:
        stream, first = info["config"]["name"], min(wants.values(), default=0)
        needed_by = tuple(sorted(name for name, sequence in wants.items() if sequence == first))
        state = _FULL[info["config"].get("discard", "old")]
        if self._enter(stream, state, needed_by):
            logger.warning(
                "stream %s is full, and %s: %s still needs its oldest message, %d; start that receiver, or give the "
                "stream more space (--max-bytes)",
                *(stream, state, " and ".join(needed_by) or "nobody", first),
            )

    def _enter(self, stream: str, state: str, needed_by: tuple[str, ...] = ()) -> bool:
        """Note a stream's state; return whether that is news."""
        space = self._spaces.setdefault(stream, SpaceReport(state=_OK))
        before = space.state, space.needed_by
        if state == _OK and space.state in _FULL.values():
            logger.info("stream %s has space again", stream)
        if space.state != state:
            now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
            space.since = None if state == _OK else now.isoformat("T", "seconds")
        space.state, space.needed_by = state, needed_by
        return before != (state, needed_by)


async def retain(context: ServerContext) -> None:
    """Keep space in the streams of a broker that is ready, until cancelled."""
    worker = StreamRetention(context)
    context.report_parts["retention"] = worker.as_json
    while True:
        pause = await worker.look()
        await asyncio.sleep(pause)
