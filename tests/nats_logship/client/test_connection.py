import asyncio
import gc
import random
from contextlib import suppress

import pytest

from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import BrokerAway, Connection
from tests.conftest import Server
from tests.nats_logship.client.served import INFO, served
from tests.shipper.conftest import until
from tests.support.ports import free_port

pytestmark = pytest.mark.nats


async def test_an_absent_broker_is_reported_at_once_without_a_password() -> None:
    connection = Connection(["nats://user:secret@127.0.0.1:1", "127.0.0.1:2"], "test")

    assert connection.servers == "nats://127.0.0.1:1, 127.0.0.1:2"
    with pytest.raises(BrokerAway, match=r"no broker at nats://127.0.0.1:1: .*logbroker run"):
        await connection.connect()


async def test_a_killed_broker_ends_a_request_and_the_next_one_waits_for_it(
    own_server: Server,
) -> None:
    connection, asked = Connection([own_server.url], "test"), asyncio.Event()

    async def say_nothing(_: object) -> None:
        asked.set()

    await connection.subscribe("silence", say_nothing)
    waiting = asyncio.ensure_future(connection.request("silence", patience=30))
    await asked.wait()
    await asyncio.to_thread(own_server.kill_and_restart)

    with pytest.raises(ConnectionLost):
        await waiting
    assert (await connection.api("INFO", patience=20))["streams"] == 0
    await connection.close()


async def test_a_starting_broker_causes_one_warning_and_a_refusal_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = [b""]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello, *rest = answers
        writer.write(hello)
        for answer in rest:
            await reader.readline()
            writer.write(answer)

    port = free_port()
    connection = Connection([f"nats://127.0.0.1:{port}"], "test")
    connecting = asyncio.create_task(connection.client())
    await until(lambda: "broker away" in caplog.text)
    async with served(serve, port):
        await until(lambda: "not as a broker" in connection.away)
        answers = [INFO]
        await until(lambda: "ended the connection" in connection.away)
        answers = [INFO, b"-ERR 'Authorization Violation'\r\n"]
        await until(lambda: "refuses a client" in connection.away)
        connecting.cancel()
        await asyncio.wait({connecting})

    warnings = [message for message in caplog.messages if "broker away" in message]
    assert len(warnings) == 2, warnings
    assert "Connection refused" in warnings[0]
    assert "refuses a client without --creds" in warnings[1]


async def test_callers_that_give_up_again_and_again_share_the_attempts() -> None:
    attempts = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.write(INFO)
        await reader.readline()
        writer.write(b"-ERR 'Authorization Violation'\r\n")

    async with served(refuse, port := free_port()):
        connection = Connection([f"nats://127.0.0.1:{port}"], "test")
        for _ in range(50):
            with suppress(TimeoutError):
                await asyncio.wait_for(connection.client(), 0.1)

    assert 0 < attempts < 20


async def test_a_broker_that_starts_a_moment_after_us_is_not_called_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        await reader.read()

    caplog.set_level("INFO")
    connection = Connection([f"nats://127.0.0.1:{(port := free_port())}"], "test")
    connecting = asyncio.create_task(connection.client())
    await until(lambda: bool(connection.away))
    async with served(serve, port):
        await connecting
        await connection.close()

    # a machine that is so slow that the broker is missed says both
    assert ("is back after" in caplog.text) is ("broker away" in caplog.text)


async def test_a_cancellation_is_never_lost(fresh_url: str) -> None:
    chance = random.Random(5)
    lost = 0
    for _ in range(150):
        connection = Connection([fresh_url], "test")
        connecting = asyncio.create_task(connection.client())
        for _ in range(chance.randrange(1, 100)):
            await asyncio.sleep(0)
        if not connecting.done():
            connecting.cancel()
            await asyncio.wait({connecting})
            lost += not connecting.cancelled()
        await connection.close()

    assert lost == 0


async def test_a_server_that_does_not_answer_is_left_for_another_one(
    own_server: Server, fresh_url: str
) -> None:
    """One that is cut off from the leader takes whatever it is sent."""
    silent = Connection([own_server.url], "silent")
    connection = Connection([own_server.url, fresh_url], "test")

    async def say_nothing(message: object) -> None:
        """Be somebody who listens, so that the server has nothing to say about it."""

    await silent.subscribe("$JS.API.LEADER", say_nothing)
    while (await connection.client()).address != own_server.url:
        await connection.close()
    with pytest.raises(ConnectionLost):
        await connection.ask("$JS.API.LEADER", patience=2.3)
    assert (await connection.client()).address == own_server.url
    with pytest.raises(ConnectionLost):
        await connection.ask("$JS.API.LEADER", patience=2.3)
    moved_to = (await connection.client()).address
    await connection.close()
    await silent.close()

    assert moved_to != own_server.url
    assert fresh_url.endswith(moved_to.removeprefix("nats://"))


SILENCE, NOBODY = ConnectionLost("no answer"), Rejected(503, 0, "nobody listens")
IN_HAND = Rejected(400, 10071, "wrong last sequence")


@pytest.mark.parametrize(
    ("endings", "is_left"),
    [
        *(([(5.0, SILENCE)], True), ([(4.0, SILENCE)], False)),
        *(([(5.0, NOBODY)], False), ([(13.0, NOBODY)], True)),
        ([(4.0, SILENCE), (0.0, None), (1.0, SILENCE)], False),
        ([(4.4, SILENCE), (0.0, IN_HAND), (5.0, SILENCE)], True),
        ([(9.0, IN_HAND)], False),
    ],
)
async def test_requests_end_at_once_on_a_server_without_a_leader_for_long(
    fresh_url: str, endings: list[tuple[float, ConnectionLost | Rejected | None]], is_left: bool
) -> None:
    connection = Connection([fresh_url, "nats://127.0.0.1:1"], "test")
    client = await connection.client()
    waiting = asyncio.ensure_future(connection.guard(asyncio.sleep(0.01), 60))
    await asyncio.sleep(0)

    for seconds, error in endings:
        connection.note_outcome(seconds, error)

    (ended,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(ended, ConnectionLost) is is_left
    assert (await connection.client() is not client) is is_left
    await connection.close()


def test_a_cancelled_connect_leaves_no_task(caplog: pytest.LogCaptureFixture) -> None:
    """The answer may come in the same turn of the loop: asyncio then forgets the cancellation."""

    async def given_up_after(turns: int) -> None:
        answered = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(INFO)
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            answered.set()
            await reader.read()

        async with served(serve) as where:
            connection = Connection([f"nats://{where}"], "test")
            connecting = asyncio.ensure_future(connection.connect())
            await answered.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            with suppress(asyncio.CancelledError):
                await connecting
                await connection.close()  # it was not given up in time

    for turns in range(10):
        asyncio.run(given_up_after(turns))
    gc.collect()

    assert caplog.messages == []
