"""Random programs for the agents of a host at the broker: every round is stored once, in order.

The oracle is the list of stored lines. An agent stores the rounds that it gets, knows all other
stored rounds, and ends if a newer agent has started.
"""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import example, given

from broker.topology import subjects_in
from nats_logship.app.exits import FencedError
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.message import EXPECTED_SEQUENCE, Origin, encode_origin
from nats_logship.wire.streams import StreamLayout
from nats_logship.wire.subjects import Subject, shipper_consumer
from shipper.publish.messages import HostMessage, HostMessages
from shipper.publish.rounds import Round
from tests.lagging import Lagging
from tests.partitions import add_subjects, change_partitions
from tests.shipper.conftest import Line, open_line, read_stream
from tests.shipper.programs import Step, as_many_as, programs
from tests.shipper.publish.agents import NOW, PublishingAgent, judge_move, make_round
from tests.shipper.saved import put

pytestmark = pytest.mark.nats

ACTIONS = {
    **{"publish": 5, "lose_acknowledgement": 4, "cut_soon": 2, "store_unseen": 3},
    **{"haunt": 4, "haunt_elsewhere": 1, "ship_late": 3, "disturb": 3},
    **{"start_another": 3, "lose_snapshot": 2, "purge": 2, "move": 4},
    **{"remember": 2, "lag": 3, "mislead": 1},
}
NUMBERS = (2, 5)  # of partitions, that put every host here to different ones
GHOST = "0000000000001-ffffffff"
ELSEWHERE = "logs.p9.{}", "logs.any.{}"  # subjects of a host that no agent here ships on
WRONG = b"[1]", b"{}", b'"ok"', b'{"seq": "x"}'


def _subjects(host: str) -> set[Subject]:
    return {Subject.for_host(host, number) for number in NUMBERS}


_hosts = (host for n in itertools.count() if len(_subjects(host := f"host{n}")) == len(NUMBERS))


class Far(Lagging):
    """The connection of agents; the broker refuses the next `crowded` messages: writes overlap."""

    crowded = 0

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if self.crowded and subject.startswith("logs."):
            self.crowded -= 1
            raise Rejected(400, 10164, "wrong last sequence")
        return await super().ask(subject, *rest, **more)


class Program:
    """A host, its newest agent with a connection that can be cut, and the host's stored lines."""

    def __init__(self, own: Connection, line: Line) -> None:
        self.own, self.line = own, line
        self.host = next(_hosts)
        self.messages = HostMessages(own, self.host, 1)
        self.far = Far([line.url], "far")
        self.partitions = NUMBERS[0]
        self.starts = itertools.count()
        self.stored: list[bytes] = []
        self.is_purged = False
        self.before: HostMessage | None = None  # the last message with lines that was judged
        self.wrong: list[bytes] = []
        self.ends = {"own": 0, "ghost": 0}

    @property
    def subject(self) -> Subject:
        return Subject.for_host(self.host, self.partitions)

    async def run(self, steps: list[Step]) -> None:
        await change_partitions(self.own, self.partitions)
        await self.own.subscribe(f"logs.*.{self.host}", self._answer_wrongly)
        self.next = int((await self.own.api("STREAM.INFO.LOGS"))["state"]["last_seq"]) + 1
        self.agent = await self._start(2)
        await self.remember(0)
        for action, amount in steps:
            await getattr(self, action)(amount)
            await self._judge(action)
        await self.lose_snapshot(0)
        await self.start_another(2)
        await self._judge_moves()
        left = (await self.own.api("CONSUMER.NAMES.LOGS")).get("consumers")
        assert shipper_consumer(self.host) not in (left or ())
        await self.far.close()

    async def publish(self, amount: int) -> None:
        await self.agent.publish(self._round("own", self.agent.agent, amount))
        self._knows_all()

    async def lose_acknowledgement(self, amount: int) -> None:
        self.line.cut_after = b'"seq"'
        await self.publish(amount)

    async def cut_soon(self, amount: int) -> None:
        publishing = asyncio.create_task(self.publish(amount))
        await asyncio.sleep(0.0005 * amount)
        self.line.cut()
        await publishing

    async def store_unseen(self, amount: int) -> None:
        """Store a round for its agent, which then sends it again, also during the write."""
        last = await self.messages.find_last("LOGS", str(self.subject))
        round_ = self._round("own", self.agent.agent, amount)
        await self._store(round_, last.sequence if last else 0)
        self.far.crowded = amount % 2
        await self.agent.publish(round_)
        self._knows_all()

    async def haunt(self, _: int) -> int:
        """Let an older agent claim the subject late."""
        return await self._claim(self.subject)

    async def haunt_elsewhere(self, _: int) -> None:
        for subject in _subjects(self.host):
            await self._claim(subject)

    async def _claim(self, subject: Subject) -> int:
        headers = encode_origin(Origin(GHOST, NOW))
        return int((await self.own.ask(str(subject), b"", headers))["seq"])

    async def ship_late(self, amount: int) -> None:
        round_ = self._round("ghost", GHOST, amount)
        await self._store(round_, await self.haunt(0))

    async def disturb(self, amount: int) -> None:
        """Let another client publish, also on other subjects of the host."""
        others = [subject.format(self.host) for subject in ELSEWHERE]
        subject = [str(self.subject), *others][max(0, amount - 2)]
        await self.own.ask(subject, b"hello\n")
        self.stored.append(b"hello\n")

    async def mislead(self, amount: int) -> None:
        """Let another client answer on the subject before the broker."""
        self.wrong = list(WRONG[:amount])
        await self.publish(amount)
        self.wrong.clear()

    async def _answer_wrongly(self, message: Message) -> None:
        if self.wrong:
            await message.respond(self.wrong.pop())

    async def remember(self, _: int) -> None:
        """Let a replica keep the last message of the subject."""
        await self.far.remember(f"LOGS.{self.subject}")

    async def lag(self, amount: int) -> None:
        """Let the replica answer the next requests with the message that it kept."""
        self.far.lags = amount

    async def start_another(self, amount: int) -> None:
        """Start a newer agent, with a clock that may be behind; the older one is fenced."""
        older, self.agent = self.agent, await self._start(amount)
        assert self.agent.agent > older.agent
        self._knows_all()
        if amount % 2:  # which hides the claim
            await (self.haunt(0) if amount == 1 else self.haunt_elsewhere(0))
        with pytest.raises(FencedError, match=self.agent.agent):
            await older.publish(make_round(older.agent, self.ends["own"] + 1, b"late\n", "own"))

    async def lose_snapshot(self, _: int) -> None:
        if not self.is_purged:  # the snapshot is the only source then
            await put(self.own, None, self.host)

    async def purge(self, amount: int) -> None:
        """Remove what the snapshot covers, as retention does."""
        await self.publish(amount)
        await self.agent.snapshots.write(self.agent.positions)
        await self._judge("purge")
        await self._judge_moves()
        for subject in _subjects(self.host):
            await self.own.api("STREAM.PURGE.LOGS", {"filter": str(subject)})
        self.is_purged = True

    async def move(self, amount: int) -> None:
        """Change the number of partitions, which the agent reads now."""
        self.partitions = NUMBERS[NUMBERS.index(self.partitions) - 1]
        await change_partitions(self.own, self.partitions)
        await self.agent.config.read()
        await self.publish(amount)

    async def _start(self, amount: int) -> PublishingAgent:
        now = NOW + (amount - 2) * 3_000_000_000 + next(self.starts)
        tag = f"{next(self.starts):08x}"
        return await PublishingAgent(self.far, tag, host=self.host, clock=lambda: now).open()

    def _round(self, file: str, agent: str, amount: int) -> Round:
        """Return the next round of a file, which is stored next."""
        start = self.ends[file]
        lines = b"".join(b"%s %d.%d\n" % (file.encode(), start, n) for n in range(amount + 1))
        self.ends[file] += len(lines)
        self.stored.append(lines)
        return make_round(agent, start, lines, file)

    async def _store(self, round_: Round, last: int) -> None:
        headers = round_.headers | {EXPECTED_SEQUENCE: str(last)}
        await self.own.ask(str(self.subject), round_.payload, headers)

    def _knows_all(self) -> None:
        known = {file: cursor.offset for file, cursor in self.agent.positions.files.items()}
        assert known.get("own", 0) == self.ends["own"]
        if self.agent.lost:
            assert known.get("ghost", 0) <= self.ends["ghost"]

    async def _judge(self, action: str) -> None:
        """Check that the stream has exactly the lines that were stored since the last check."""
        found = await read_stream(self.own, self.next)
        self.next = found[-1].sequence + 1 if found else self.next
        assert [one.lines for one in found if one.lines] == self.stored, action
        self.stored.clear()

    async def _judge_moves(self) -> None:
        """Check that claims on both subjects record each change of the subject."""
        stored: dict[int, HostMessage] = {}
        async for page in self.messages.read_since(1, "LOGS"):
            for one in page:
                stored[one.sequence] = one
                if one.writer in {"", GHOST} or not (one.origin and one.origin.sections):
                    continue
                if self.before is not None and self.before.subject != one.subject:
                    judge_move(self.before, one, stored)
                self.before = one


@example(steps=[("purge", 0), ("move", 0)])
@example(steps=[("disturb", 3), ("disturb", 4), ("move", 0)])
@example(steps=[("start_another", 2), ("lag", 2), ("start_another", 0)])
@example(steps=[("publish", 0), ("lag", 3), ("lose_acknowledgement", 0)])
@example(steps=[("mislead", 4), ("store_unseen", 1)])
@as_many_as(15)
@given(steps=programs(ACTIONS))
def test_rounds_are_stored_once_and_in_order_whatever_happens(
    logs_url: str, steps: list[Step]
) -> None:
    async def run() -> None:
        own = Connection([logs_url], "own")
        elsewhere = (subject.format("*") for subject in ELSEWHERE)
        await add_subjects(own, *subjects_in("LOGS", StreamLayout(max(NUMBERS))), *elsewhere)
        async with open_line(logs_url) as line:
            await Program(own, line).run(steps)
        await own.close()

    asyncio.run(run())
