"""Rounds are stored once and in order, whatever has to be retried; an older agent is fenced."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.client.answer import Rejected
from broker.client.connection import Connection
from broker.wire.delivery import RawMessage
from broker.wire.subjects import Subject
from shipper.publish.messages import AgentId
from shipper.publish.rounds import Round
from tests.shipper.publish.agents import PublishingAgent

pytestmark = pytest.mark.nats

Make = Callable[..., Round]
Stream = Callable[[], Awaitable[list[Any]]]


def round_of(make: Make, agent: AgentId, number: int, lines: int = 3) -> Round:
    text = b"".join(b"line %d.%03d\n" % (number, n) for n in range(lines))
    return make(str(agent), 10_000 * number, text)


def lines_of(messages: list[Any]) -> list[bytes]:
    return [message.lines for message in messages if message.lines]


async def until_stored(stream: Stream, count: int) -> None:
    while len(lines_of(await stream())) < count:  # noqa: ASYNC110 - the broker sets no event
        await asyncio.sleep(0.01)


async def test_a_round_whose_acknowledgement_was_lost_is_stored_once(
    line: Any, web01: Subject, make_round: Make, stream: Stream
) -> None:
    connection = Connection([line.url], "test")
    agent = await PublishingAgent(connection).open()
    rounds = [round_of(make_round, agent.agent, n) for n in range(4)]

    for r in rounds:
        line.cut_after = b'"seq"'
        await agent.publish(r)
    await connection.close()

    assert line.seen == 4
    assert lines_of(await stream()) == [r.payload for r in rounds]


async def test_a_line_cut_at_random_moments_repeats_nothing_and_reorders_nothing(
    line: Any, web01: Subject, make_round: Make, stream: Stream
) -> None:
    connection = Connection([line.url], "test")
    agent = await PublishingAgent(connection).open()
    rounds = [round_of(make_round, agent.agent, n, 20) for n in range(60)]

    async def cut_now_and_then() -> None:
        for number in range(12):
            await asyncio.sleep(0.003 * (number % 4))
            line.cut()
            await asyncio.sleep(0.1)

    cutting = asyncio.create_task(cut_now_and_then())
    for r in rounds:
        await agent.publish(r)
    await cutting
    await connection.close()

    assert lines_of(await stream()) == [r.payload for r in rounds]


async def test_a_plain_clients_message_after_a_lost_acknowledgement_hides_no_stored_round(
    line: Any, connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    through = Connection([line.url], "test")
    agent = await PublishingAgent(through).open()
    r = round_of(make_round, agent.agent, 1)
    line.deaf = True
    publishing = asyncio.create_task(agent.publish(r))
    await until_stored(stream, 1)
    await connection.ask(str(web01), b"hello\n")
    line.deaf = False
    line.cut()

    await publishing
    await through.close()
    assert lines_of(await stream()) == [r.payload, b"hello\n"]


async def test_a_full_stream_is_waited_for_and_goes_on_in_order(
    connection: Connection,
    web01: Subject,
    make_round: Make,
    stream: Stream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = await PublishingAgent(connection).open()
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api("STREAM.UPDATE.LOGS", {**config, "max_bytes": 2000})
    rounds = [round_of(make_round, agent.agent, n) for n in range(8)]

    async def publish_all() -> None:
        for r in rounds:
            await agent.publish(r)

    caplog.set_level("INFO")
    publishing = asyncio.create_task(publish_all())
    async with asyncio.timeout(20):
        while "full" not in caplog.text:  # noqa: ASYNC110 - what is said is waited for
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    assert not publishing.done()
    await connection.api("STREAM.UPDATE.LOGS", config)
    await publishing

    assert lines_of(await stream()) == [r.payload for r in rounds]
    assert len([m for m in caplog.messages if "full" in m]) == 1
    assert [m for m in caplog.messages if "resumed" in m]


class Crowded(Connection):
    """A connection whose next rounds a broker refuses, so many, since another write of their subject is under way."""

    def __init__(self, url: str) -> None:
        super().__init__([url], "crowded")
        self.left = 0

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if self.left and subject.startswith("logs."):
            self.left -= 1
            raise Rejected(400, 10164, "wrong last sequence")
        return await super().ask(subject, *rest, **more)


async def test_a_round_whose_own_write_is_still_under_way_is_stored_once(
    line: Any, web01: Subject, make_round: Make, stream: Stream
) -> None:
    crowded = Crowded(line.url)
    agent = await PublishingAgent(crowded).open()
    rounds = [round_of(make_round, agent.agent, number) for number in range(3)]

    for r in rounds:
        line.cut_after = b'"seq"'
        publishing = asyncio.create_task(agent.publish(r))
        await until_stored(stream, rounds.index(r) + 1)
        crowded.left = 3
        await publishing
    await crowded.close()

    assert line.seen == len(rounds)
    assert lines_of(await stream()) == [r.payload for r in rounds]


async def test_whoever_else_answers_on_the_subject_is_not_believed(
    connection: Connection, logs_url: str, web01: Subject, make_round: Make, stream: Stream
) -> None:
    agent = await PublishingAgent(connection).open()
    other, answers = (
        Connection([logs_url], "other"),
        iter([b"[1]", b"{}", b'"ok"', b'{"seq": "x"}']),
    )

    async def answer(message: Any) -> None:
        if words := next(answers, b""):
            await message.respond(words)

    await other.subscribe(str(web01), answer)
    await (await other.client()).flush()
    rounds = [round_of(make_round, agent.agent, number) for number in range(3)]

    for r in rounds:
        await agent.publish(r)
    await other.close()

    assert lines_of(await stream()) == [r.payload for r in rounds]


@pytest.mark.parametrize("older", [False, True], ids=["own lines", "an older agent's lines"])
async def test_a_broker_that_was_set_back_is_gone_on_with(
    connection: Connection,
    web01: Subject,
    make_round: Make,
    stream: Stream,
    older: bool,
) -> None:
    agent = await PublishingAgent(connection).open()
    kept = await agent.publish(round_of(make_round, agent.agent, 0, 1))
    if older:
        agent = await PublishingAgent(connection, "bbbbbbbb").open()
    for number in range(1, 30):
        await agent.publish(round_of(make_round, agent.agent, number, 1))
    await set_back(connection, kept)

    async with asyncio.timeout(60):
        await agent.publish(round_of(make_round, agent.agent, 40, 1))
        await agent.publish(round_of(make_round, agent.agent, 41, 1))

    assert [line.split()[1][:2] for line in lines_of(await stream())] == [b"0.", b"40", b"41"]


async def set_back(connection: Connection, last: int) -> None:
    """Make the stream anew with the messages up to a sequence, as a restored backup has them."""
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    messages = [
        (await connection.api("STREAM.MSG.GET.LOGS", {"seq": n}))["message"]
        for n in range(1, last + 1)
    ]
    await connection.api("STREAM.DELETE.LOGS")
    await connection.api("STREAM.CREATE.LOGS", config)
    for message in messages:
        head = base64.b64decode(message.get("hdrs", ""))
        headers = RawMessage("", "", head, b"").headers or {}
        ours = {name: value for name, value in headers.items() if name.startswith("Log-")}
        data = base64.b64decode(message.get("data", ""))
        await connection.ask(message["subject"], data, ours)
