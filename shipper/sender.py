"""Makes rounds of gathered blocks and publishes them in order.

One round is in flight while the next one is compressed, and a third one is read by the loop. So a
broker that is away costs neither lines nor memory: the files wait.
"""

import asyncio
import logging
import random
from collections import ChainMap, deque
from dataclasses import replace
from math import inf

from nats_logship.app.faults import fault
from shipper.publish.publisher import Publisher, RoundRefused, RoundTooLarge, SessionLost
from shipper.publish.rounds import LEAST_SIZE, NEARBY_SIZE, Round, cut, make, next_size
from shipper.rate_limit import RateLimit
from shipper.settings import ShipperSettings
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.block import Block
from shipper.status.report import AgentMeter

logger = logging.getLogger(__name__)
_SMALL = 128 * 1024  # bytes of lines that are compressed sooner than a thread would begin
_LIMITED_INTERVAL = 1.0  # seconds at least between two full rounds that --max-rate holds back
_LONGEST_PAUSE = 0.2  # seconds before the next claim: another client may publish again and again
_REMEMBERED = 600.0  # seconds; two rounds in it without an answer are no chance
Task = asyncio.Task[None]


class Sender:
    """Publishes blocks, at `limit` bytes of lines per second.

    `tasks` are the sendings that the loop waits for, the oldest first.
    """

    def __init__(
        self,
        publisher: Publisher,
        acknowledged: Acknowledged,
        meter: AgentMeter,
        settings: ShipperSettings,
        stopping: asyncio.Event,
    ) -> None:
        """Send nothing yet; once `stopping` is set only the round in flight is published."""
        self.limit = RateLimit(settings.max_rate)
        self._settings = settings
        self.tasks = deque[Task]()
        self._publisher = publisher
        self._acknowledged = acknowledged
        self._meter = meter
        self._stopping = stopping
        self._size = LEAST_SIZE  # bytes of lines in a round, as the connection permits
        self._is_slow = False  # a round was too large, and rounds are still small
        self._unanswered_at = deque[float]([-inf, -inf], 2)  # rounds, by the loop's clock
        self._read_at = deque[dict[str, int]]()  # of the blocks of each sending, by file id

    def change(self, settings: ShipperSettings) -> None:
        """Use other settings from the next round on."""
        self._settings = settings
        self.limit.change(settings.max_rate)

    def begin_session(self) -> None:
        """Forget what was sent in the session before and not acknowledged."""
        self.tasks.clear()
        self._read_at.clear()

    @property
    def budget(self) -> int:
        """How many bytes of lines to gather for the next round."""
        return min(self._size, self._most)

    @property
    def _most(self) -> int:
        seconds = max(_LIMITED_INTERVAL, self._publisher.config.interval.seconds)
        limit = min(int(self._settings.round_size), self.limit.bytes_in(seconds))
        return self._publisher.limit_bytes(limit)

    @property
    def is_in_flight(self) -> bool:
        """Whether a round is sent and not acknowledged."""
        return any(not task.done() for task in self.tasks)

    def unacknowledged(self) -> dict[str, int]:
        """Return when the oldest lines that are not acknowledged were read, by file id."""
        return dict(ChainMap(*self._read_at))

    def read_sizes(self) -> tuple[int, int, int]:
        """Return the bytes of the largest block, of the longest line, and of the longest entry.

        After a round that was too large longer lines go in pieces. Longer entries of a journal are
        cut after a second one without an answer: a broker that hangs once must not cost bytes.
        """
        block, line = min(NEARBY_SIZE, self._most), int(self._settings.max_line)
        entry = line
        self._is_slow &= self._size < block
        if self._is_slow:
            block, line = min(block, LEAST_SIZE), min(line, LEAST_SIZE)
        if self._unanswered_at[0] > asyncio.get_running_loop().time() - _REMEMBERED:
            entry = min(entry, LEAST_SIZE)
        limit = self._publisher.limit_bytes
        return limit(block), limit(line), limit(entry)

    def send(self, blocks: list[Block], group: asyncio.TaskGroup) -> None:
        """Begin to publish blocks, by a task of `group`, behind those that were sent before."""
        self._read_at.append({block.section.span.file_id: blocks[0].read_at for block in blocks})
        last = self.tasks[-1] if self.tasks else None
        self.tasks.append(group.create_task(self._send(blocks, last)))

    async def _send(self, blocks: list[Block], last: Task | None) -> None:
        size = sum(len(block.lines) for block in blocks)
        if size < _SMALL or self._settings.compression == "none":
            rounds = self._make(blocks)
        else:
            rounds = await asyncio.to_thread(self._make, blocks)
        del blocks  # their lines are memory
        if last is not None:
            await last
        for round_ in rounds:
            await self.limit.wait_for(round_.origin.size, self._stopping)
            if self._stopping.is_set():
                return  # the next start reads these lines again
            await self._publish_in_time(round_)
        self._read_at.popleft()

    def _make(self, blocks: list[Block]) -> list[Round]:
        agent, cuts = self._publisher.agent, cut(blocks, self._most)
        return [make(some, agent, self._settings.compression) for some in cuts]

    async def _publish_in_time(self, round_: Round) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        publisher = self._publisher
        sequence = await publisher.in_time(self._publish(round_), len(round_.payload))
        self._acknowledged.advance(round_.origin, sequence, publisher.stream)
        fault("advanced")
        self._meter.count_round(round_)
        self._size = next_size(self._size, round_, clock() - began, self._most)

    async def _publish(self, round_: Round) -> int:
        """Publish a round, if need be in new sessions; return its sequence.

        So another client on our subject costs a claim, not another reading. Raises `SessionLost` if
        the files must be read again, from the positions found then.
        """
        publisher, acknowledged = self._publisher, self._acknowledged
        while True:
            try:
                return await publisher.publish(round_)
            except SessionLost as lost:
                logger.info("%s; claiming again", lost)
                is_too_large = isinstance(lost, RoundTooLarge)
                if is_too_large and not isinstance(lost, RoundRefused):
                    self._unanswered_at.append(asyncio.get_running_loop().time())
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))
            known = acknowledged.positions
            await publisher.prepare()
            found = await publisher.open_session(known)
            if is_too_large:
                self._size, self._is_slow = LEAST_SIZE, True
            has_moved = found.files != known.files or is_too_large
            if has_moved or len(round_.payload) > publisher.max_payload:
                acknowledged.positions = found
                raise SessionLost("the files are read again from other positions")
            acknowledged.positions = replace(acknowledged.positions, covered=found.covered)
