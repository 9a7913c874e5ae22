"""The retention worker of a stream: looks how full it is, and purges what every receiver has committed, oldest first.

From the high-water mark on, down to the low-water mark, a stream is purged by sequence: that costs nats-server next to
nothing, while a purge of a subject reads the whole stream. So the first message that a receiver still needs ends it; what
is to be done then is the stream's discard policy: hosts wait (new), or the oldest lines go (old). Whoever dies here leaves
nothing to be mended. In a cluster only the broker beside the stream's leader acts.
"""

import asyncio
import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from broker.app.exits import OperatorError
from broker.client.answer import ConnectionLost, Rejected
from broker.client.config import known_layout
from broker.report import SpaceReport
from broker.retention.purging import Purge, needed, purge
from broker.server.context import ServerContext
from broker.server.resolve import space_kept_free
from broker.wire.descent import is_being_restored
from broker.wire.streams import MAX_PAYLOAD

_OFTEN, _SELDOM = 0.1, 0.5  # seconds between looks, the first while something is purged
_SHARE = 3  # how many times as long as a purge the pause behind it is
_PATIENCE = 60.0  # seconds for a purge
_OK, _PURGING = "ok", "purging"
_HIGH, _LOW = 90, 80  # percent of a limit: from when on, and down to which, messages are purged
_ROUND_BYTES = 2 * MAX_PAYLOAD  # what a host or two may publish between two looks
_FULL = {"new": "hosts wait", "old": "oldest lines are dropped"}
logger = logging.getLogger(__name__)


def excess(info: Mapping[str, Any], missing: int = 0) -> float:
    """Return the share of a stream that has to go, from 0 to 1: 0 below the high-water mark, else down to the low-water mark.

    `info` is the answer to STREAM.INFO; `missing` is how many bytes the disk has less than it should. Below a small limit the mark
    leaves space for a round: a round that is refused whole would wait for ever.
    """
    held, limit = int(info["state"]["bytes"]), int(info["config"].get("max_bytes", -1))
    high = min(limit * _HIGH // 100, limit - min(_ROUND_BYTES, limit // 2))
    over = held - high * _LOW // _HIGH if limit > 0 and held >= high else 0
    return min(max(missing, over, 0) / held, 1.0) if held else 0.0


class StreamRetention:
    """The worker of one stream; `space` is what it reports."""

    def __init__(self, context: ServerContext, stream: str) -> None:
        """Do nothing yet."""
        self.space = SpaceReport(state=_OK)
        self._context, self._connection = context, context.connection
        self._stream = stream

    async def run(self) -> None:
        """Look again and again until cancelled; a broker that is away is no error."""
        failures = 0
        while True:
            pause = _SELDOM
            try:
                pause = await self._look()
                failures = 0
            except (ConnectionLost, Rejected, OperatorError, OSError) as error:
                failures += 1
                # once is no news: so it is while nats-server reads its accounts again, and when it ends
                if failures == 2:
                    logger.warning("retention cannot look at %s: %s", self._stream, error)
            await asyncio.sleep(pause)

    async def _look(self) -> float:
        """Look once, and return the seconds until the next look."""
        began = asyncio.get_running_loop().time()
        info = await self._connection.api(f"STREAM.INFO.{self._stream}")
        cluster = info.get("cluster") or {}
        # a server on its own has no name of a cluster, and is the leader of all that it holds
        leads = not cluster.get("name") or cluster.get("leader") == self._context.settings.name
        share = excess(info, self._missing())
        if not leads or is_being_restored(info["config"]) or not share:
            self._enter(_OK)
            return _SELDOM
        await self._purge(info, share)
        return max(_OFTEN, _SHARE * (asyncio.get_running_loop().time() - began))

    def _missing(self) -> int:
        """Return how many bytes the disk has less than should stay free, once half of that is used up."""
        disk = shutil.disk_usage(self._context.folder)
        reserve = space_kept_free(self._context.settings, disk.total)
        return reserve - disk.free if disk.free < reserve // 2 else 0

    async def _purge(self, info: Mapping[str, Any], share: float) -> None:
        """Purge about a share of the stream, as far as receivers have it."""
        state, stream = info["state"], self._stream
        first, end = int(state["first_seq"]), int(state["last_seq"]) + 1
        # where no entry says how many partitions there are, the subjects of the stream do
        layout = replace(
            await known_layout(self._connection), streams=self._context.conf.topology.stream_count
        )
        wants = await needed(self._connection, info, layout.partitions_in(info["config"]))
        until = min([first + math.ceil(share * (end - first)), *wants.values()])
        if until > first:
            chosen = Purge(stream, info["created"], until)
            self.space.purged_messages += await purge(self._connection, [chosen], _PATIENCE)
            self._enter(_PURGING)
        else:
            oldest = sorted(who for who, sequence in wants.items() if sequence <= first)
            self._enter(_FULL[info["config"].get("discard", "old")], tuple(oldest))

    def _enter(self, state: str, needed_by: tuple[str, ...] = ()) -> None:
        """Note the stream's state, and since when it is so; log where that is news."""
        space = self.space
        if (space.state, space.needed_by) == (state, needed_by):
            return
        if state in _FULL.values():
            logger.warning(
                "stream %s is full, and %s: %s still needs its oldest message; start that receiver, or give the stream "
                "more space (--max-bytes)",
                *(self._stream, state, " and ".join(needed_by) or "nobody"),
            )
        else:
            logger.info("retention of stream %s: %s", self._stream, state)
        if space.state != state:
            now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
            space.since = None if state == _OK else now.isoformat("T", "seconds")
        space.state, space.needed_by = state, needed_by


async def retain(context: ServerContext) -> None:
    """Keep space in the streams of a broker that is ready, until cancelled."""
    workers = {one: StreamRetention(context, one) for one in context.conf.topology.names}
    context.retention = {name: one.space for name, one in workers.items()}
    async with asyncio.TaskGroup() as group:
        for one in workers.values():
            group.create_task(one.run())
