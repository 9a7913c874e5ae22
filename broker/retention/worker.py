"""Purge received messages while `logbroker run` serves, as soon as a stream or the disk fills up.

Each stream has a worker, which polls the stream twice a second. In a cluster only the broker beside
the stream's leader purges.
"""

import asyncio
import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from broker.inspect.streams import read_known_layout
from broker.report import SpaceReport, SpaceState
from broker.retention.decide import (
    Purge,
    SpaceDecision,
    compute_lacking_bytes,
    compute_share,
    decide_purge,
)
from broker.retention.purge import find_needs, run_purges
from broker.server.context import ServerContext
from broker.server.resolve import compute_reserve
from nats_logship.app.exits import OperatorError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.wire.restored import is_being_restored

_POLL_BUSY, _POLL_IDLE = 0.1, 0.5  # seconds between polls, the first while messages are purged
_PAUSE_FACTOR = 3  # the pause behind a purge is so many times as long as the purge
_PATIENCE = 60.0  # seconds for a purge
logger = logging.getLogger(__name__)


async def run_retention(context: ServerContext) -> None:
    """Keep space in the streams of a broker that is ready, until cancelled."""
    workers = {one: StreamRetention(context, one) for one in context.conf.topology.names}
    context.retention = {name: one.space for name, one in workers.items()}
    context.infos = {}
    async with asyncio.TaskGroup() as group:
        for one in workers.values():
            group.create_task(one.run())


class StreamRetention:
    """The worker of one stream; `space` is what it reports."""

    def __init__(self, context: ServerContext, stream: str) -> None:
        """Do nothing yet."""
        self.space = SpaceReport(state=SpaceState.OK)
        self._context, self._connection = context, context.connection
        self._stream = stream

    async def run(self) -> None:
        """Poll until cancelled; go on while the broker is away."""
        failures = 0
        while True:
            pause = _POLL_IDLE
            try:
                pause = await self._poll()
                failures = 0
            except (ConnectionLost, Rejected, OperatorError, OSError) as error:
                failures += 1
                # one failure is normal while nats-server reloads its accounts, and when it ends
                if failures == 2:
                    logger.warning(
                        "cannot check the space of stream %s: %s; tries again every %g s",
                        self._stream,
                        error,
                        _POLL_IDLE,
                    )
            await asyncio.sleep(pause)

    async def _poll(self) -> float:
        """Check the space, purge if necessary; return the seconds until the next poll."""
        clock = asyncio.get_running_loop().time
        began = clock()
        info = await self._connection.api(f"STREAM.INFO.{self._stream}")
        share = compute_share(info, self._read_lacking_bytes())
        self._context.infos[self._stream] = info
        if not share or not self._context.leads(info) or is_being_restored(info["config"]):
            self._report(SpaceDecision(SpaceState.OK))
            return _POLL_IDLE
        await self._purge(info, share)
        return max(_POLL_BUSY, _PAUSE_FACTOR * (clock() - began))

    def _read_lacking_bytes(self) -> int:
        disk = shutil.disk_usage(self._context.folder)
        return compute_lacking_bytes(disk.free, compute_reserve(self._context.settings, disk.total))

    async def _purge(self, info: Mapping[str, Any], share: float) -> None:
        """Purge about a share of the stream, as far as receivers have committed it."""
        # without an entry for the number of partitions, the stream's subjects say it
        layout = replace(
            await read_known_layout(self._connection),
            streams=self._context.conf.topology.stream_count,
        )
        needs = await find_needs(self._connection, info, layout.partitions_in(info["config"]))
        decision = decide_purge(info, share, needs)
        if decision.until:
            purge = Purge(self._stream, info["created"], decision.until)
            self.space.purged_messages += await run_purges(self._connection, [purge], _PATIENCE)
        self._report(decision)

    def _report(self, decision: SpaceDecision) -> None:
        """Report the state of the stream's space, and since when; log a change."""
        space, state, needed_by = self.space, decision.state, decision.needed_by
        if (space.state, space.needed_by) == (state, needed_by):
            return
        self._log(decision)
        if space.state != state:
            now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
            space.since = None if state is SpaceState.OK else now.isoformat("T", "seconds")
        space.state, space.needed_by = state, needed_by

    def _log(self, decision: SpaceDecision) -> None:
        match decision.state:
            case SpaceState.OK:
                logger.info("stream %s has space again", self._stream)
            case SpaceState.PURGING:
                logger.info("stream %s is short of space: purged received messages", self._stream)
            case SpaceState.HOSTS_WAIT | SpaceState.LINES_DROPPED:
                logger.warning(
                    "stream %s is full, and %s: %s still needs its oldest message; start that "
                    "receiver, or give the stream more space (--max-bytes)",
                    self._stream,
                    decision.state,
                    " and ".join(decision.needed_by) or "nobody",
                )
