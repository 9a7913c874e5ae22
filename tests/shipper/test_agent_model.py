"""Random programs of file actions, with whole agents and a real broker; both are killed at times.

`tests/shipper/model.py` is their oracle; `test_follower_model.py` puts the follower alone through
the same, and scans at chosen moments. Agents run on the test's own loop: to kill one is to cancel
it and to restore the snapshot of the positions as it was at that moment.
"""

import asyncio
import itertools
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nats_logship.client.answer import ConnectionLost
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.wire.subjects import Subject
from shipper.agent import Agent
from shipper.clock import Clock
from shipper.loop import Intervals
from shipper.settings import ShipperSettings
from shipper.sources.block import Block
from tests.conftest import Server, apply_topology, start_server
from tests.shipper.conftest import Line, Read, open_line, read_stream
from tests.shipper.host import SECOND
from tests.shipper.journal_model import JOURNAL_ACTIONS, JournalModel
from tests.shipper.model import FILE_ACTIONS, LAYOUTS, Model
from tests.shipper.programs import STEP, Step, as_many_as, programs
from tests.shipper.saved import put, saved
from tests.support.journals import have_journal
from tests.support.processes import Processes

pytestmark = [pytest.mark.nats, pytest.mark.timeout(3600)]

ACTIONS = {
    **FILE_ACTIONS,
    **JOURNAL_ACTIONS,
    "copy_slowly_and_truncate": 2,
    "wait": 8,
    "settle": 5,
    "pass_time": 1,
    "set_clock_back": 1,
    "set_clock_ahead": 1,
    "kill": 3,
    "stop": 1,
    "start": 2,
    "lose_positions": 1,
    "restart_broker": 1,
    "lose_acknowledgement": 2,
}
Answer = TypeVar("Answer")
WAITS = (0.001, 0.003, 0.01, 0.03, 0.06)
TOGETHER = 20
"""Hosts that run at the same time, since each of them mostly waits."""
PATIENCE = 60.0
PROBES = "probe-*.log"
JOURNALS = 4
"""One in so many hosts has a journal, since the others have to wait for its programs."""


INTERVALS = Intervals(scan_after=0.005, scan_every=1.0, interval=0.001)


class Broker:
    """A server of these tests, a connection that reads back, and the loop that all of it uses."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.runner = asyncio.Runner()
        self.connection = Connection([server.url], "model")
        self.numbers = itertools.count(1)
        self.restarting = asyncio.Lock()

    def close(self) -> None:
        self.runner.run(self.connection.close())
        self.runner.close()

    async def restart(self) -> None:
        async with self.restarting:  # several programs may want to at the same time
            await asyncio.to_thread(self.server.kill_and_restart)

    async def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Ask, again and again while it is being restarted, or where an agent has just written."""
        while True:
            try:
                return await question(self.connection)
            except (ConnectionLost, Conflict):
                await self.connection.client()

    async def read(self, subject: Subject, first: int) -> list[Read]:
        """Return the messages of a subject from a sequence on."""
        return await self.ask(lambda one: one.guard(read_stream(one, first, subject), 2.0))


class Program:
    """An agent and the model of its folder; time is real time plus what the program adds."""

    def __init__(self, folder: Path, broker: Broker, line: Line, layout: str) -> None:
        self.broker, self.line = broker, line
        number = next(broker.numbers)
        self.host = f"host{number}"
        has_journal = have_journal() and number % JOURNALS == 0
        self.journal = JournalModel(folder / "journal") if has_journal else None
        self.subject = Subject.for_host(self.host, 2)
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.later = self.ahead = 0
        self.layout = LAYOUTS[layout]
        self.model = Model(self.logs, self.clock, self.layout)
        self.reports: list[str] = []
        self.task: asyncio.Task[None] | None = None
        self.blocks: list[Block] = []
        self.entries: list[Block] = []  # of the journal
        self.next = 1
        self.probes = itertools.count(1)
        self.saved = self.lost = False

    def clock(self) -> int:
        return time.time_ns() + self.later + self.ahead

    def steady(self) -> int:
        return time.monotonic_ns() + self.later

    async def run(self, steps: list[Step]) -> None:
        logger, handler = logging.getLogger("shipper.sources.notices"), Reports(self)
        logger.addHandler(handler)
        try:
            for action, amount in steps:
                self.later += STEP
                if action in FILE_ACTIONS:
                    getattr(self.model, action)(amount)
                elif action in JOURNAL_ACTIONS:
                    await self.change_journal(action, amount)
                else:
                    await getattr(self, action)(amount)
                if self.task is not None:
                    self.model.may_have_scanned()
            for _ in range(3):
                await self.pass_time()
                await self.settle()
        finally:
            await self.kill()
            logger.removeHandler(handler)
        probes = str(self.logs / "probe-")
        messages = await self.broker.read(self.subject, 1)
        files, entries = divide(messages)
        files = [block for block in files if not block.section.path.startswith(probes)]
        faults = self.model.judge(files, self.reports)
        faults += self.journal.judge(entries) if self.journal else []
        assert not faults, f"{faults}\n  after {steps}\n  with {self.layout}"

    async def copy_slowly_and_truncate(self, amount: int) -> None:
        self.model.begin_to_copy(amount)
        await self.wait(amount)
        self.model.finish_copying(amount)
        await self.wait(amount)
        self.model.truncate_copied(amount)

    async def change_journal(self, action: str, amount: int) -> None:
        if self.journal:
            await asyncio.to_thread(getattr(self.journal, action), amount)

    async def wait(self, amount: int) -> None:
        await asyncio.sleep(WAITS[amount])

    async def pass_time(self, _: int = 0) -> None:
        self.later += 3 * SECOND

    async def set_clock_back(self, amount: int) -> None:
        self.ahead -= amount * SECOND
        self.model.set_clock_back()

    async def set_clock_ahead(self, amount: int) -> None:
        self.ahead += amount * 3600 * SECOND

    async def settle(self, _: int = 0) -> None:
        """Wait until the agent has scanned and shipped what it then found.

        An unknown file is shipped after a scan; lines that are written to it later are shipped
        after all others that could be gathered.
        """
        await self.start()
        probe = self.logs / PROBES.replace("*", str(next(self.probes)))
        for line in (b"scanned\n", b"gathered\n"):
            with probe.open("ab") as file:
                file.write(line)
            async with asyncio.timeout(PATIENCE):
                await self._shipped(str(probe), probe.stat().st_size)
        if journal := self.journal:
            async with asyncio.timeout(PATIENCE):
                await self._wait_until(lambda: journal.is_shipped(self.entries))
        self.model.scanned()
        self.saved = True  # before the probe was read, the snapshot had all that was found

    async def start(self, _: int = 0) -> None:
        if self.task is None:
            await self._read()
            self.model.restarted(self.blocks, saved=self.saved)
            self.lost = False
            self.task = asyncio.create_task(self._ship())

    async def stop(self, _: int) -> None:
        if self.task is not None:
            self.task.cancel()
            ended, _ = await asyncio.wait({self.task}, timeout=PATIENCE)
            assert ended, "the agent goes on although it was cancelled"
            with suppress(asyncio.CancelledError):
                self.task.result()
            # an agent that has written all that it knows does not write it again
            self.task, self.saved = None, not self.lost

    async def kill(self, amount: int = 0) -> None:
        if self.task is not None:
            value = await self.broker.ask(partial(saved, host=self.host))
            was_saved = self.saved
            await self.stop(amount)
            self.saved = was_saved
            await self._put(value)

    async def lose_positions(self, _: int) -> None:
        await self._put(None)
        self.saved, self.lost = False, True

    async def restart_broker(self, amount: int) -> None:
        if amount == 0:
            await self.broker.restart()

    async def lose_acknowledgement(self, _: int) -> None:
        """Cut the line at the next answer to a round, which nobody gets."""
        self.line.cut_after = b'"seq"'

    async def _put(self, value: bytes | None) -> None:
        await self.broker.ask(partial(put, value=value, host=self.host))

    async def _ship(self) -> None:
        settings = ShipperSettings(
            file=[str(self.logs / name) for name in (PROBES, *self.layout.patterns)],
            journal=self.journal is not None,
            journal_directory=str(self.journal.folder) if self.journal else None,
            server=[self.line.url],
            host=self.host,
            compression="none",
            max_line=1024,
            round_size=64 * 1024,
            grace="2s",
            # half of the hosts; files of probes get a line more often than that
            record_start="^[0-9s]" if int(self.host[4:]) % 2 else "",
            record_timeout="10ms",
            record_lines=5,
        )
        agent = Agent(settings, self.host, Clock(self.clock, self.steady), INTERVALS)
        await agent.work()

    async def _shipped(self, path: str, size: int) -> None:
        def is_there() -> bool:
            sections = (block.section for block in self.blocks)
            return any(one.path == path and one.span.end == size for one in sections)

        await self._wait_until(is_there)

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            if self.task is not None and self.task.done():
                self.task.result()
            await asyncio.sleep(0.004)
            await self._read()

    async def _read(self) -> None:
        messages = await self.broker.read(self.subject, self.next)
        for blocks, new in zip((self.blocks, self.entries), divide(messages), strict=True):
            blocks += new
        self.next = messages[-1].sequence + 1 if messages else self.next


def divide(messages: Sequence[Read]) -> tuple[list[Block], list[Block]]:
    """Return the blocks of files, and those of journals."""
    blocks = [block for message in messages for block in message.blocks]
    entries = [block for block in blocks if block.section.unit == "entries"]
    return [block for block in blocks if block.section.unit == "bytes"], entries


class Reports(logging.Handler):
    """Keeps what an agent warned of in the folder of a program."""

    def __init__(self, program: Program) -> None:
        super().__init__(logging.WARNING)
        self.program = program

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it is about this program's logs."""
        text = record.getMessage()
        if text.startswith(f"{self.program.logs}/") and not text.startswith(
            f"{self.program.logs}/probe-"
        ):
            self.program.reports.append(text)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("model-server")
    with Processes(folder) as processes:
        server = start_server(processes, folder)
        apply_topology(server.url)
        broker = Broker(server)
        yield broker
        broker.close()


COMPRESSED = [("write", 3), ("settle", 4), ("copy_truncate", 2), ("settle", 1), ("compress", 0)]
"""The file of a probe gets the inode of the one that was compressed."""
LOST = [
    *(("write", 1), ("settle", 0), ("lose_acknowledgement", 0), ("write", 3), ("delete", 0)),
    *(("write", 0), ("settle", 0), ("write", 4), ("wait", 2), ("lose_acknowledgement", 0)),
    *(("write", 2), ("rename", 0), ("write", 1)),
]
"""Acknowledgements are lost of a deleted file, and of one that is rotated."""


@as_many_as(48, together=TOGETHER)
@example(hosts=(("numbers", COMPRESSED), ("numbers", LOST)) * 4)
@given(
    hosts=st.tuples(*[st.tuples(st.sampled_from(sorted(LAYOUTS)), programs(ACTIONS))] * TOGETHER)
)
def test_what_was_written_is_in_the_stream_once_and_in_order_whatever_happens(
    broker: Broker, hosts: tuple[tuple[str, list[Step]], ...]
) -> None:
    async def ship(folder: Path, layout: str, steps: list[Step]) -> None:
        async with open_line(broker.server.url) as line:
            await Program(folder, broker, line, layout).run(steps)

    async def run(folder: Path) -> None:
        async with asyncio.TaskGroup() as group:
            for number, (layout, steps) in enumerate(hosts):
                group.create_task(ship(folder / str(number), layout, steps))

    with tempfile.TemporaryDirectory() as folder:
        broker.runner.run(run(Path(folder)))
