"""A request for a consumer is passed on only where the consumer cannot push, and a line that one pushes is no request."""

import asyncio

import pytest

from broker.client.connection import Connection, Message
from broker.server.requests import listen, pulled_only


@pytest.mark.parametrize(
    "request_",
    [
        b'{"config": {"deliver_subject": "x"}}',
        b'{"config": {"deliver_subject": ""}}',
        b'{"config": {"Deliver_Subject": "x"}}',
        b'{"config": {"name": "a"}, "CONFIG": {"deliver_subject": "x"}}',
        b'{"config": {"flow_control": true}}',
        b'{"config": {"name": "a\\u000bb"}}',
        b'{"config": {"durable_name": 1}}',
        b'{"config": {}, "pedantic": true}',
        b'{"config": []}',
        b"[]",
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"config": {"filter_subject": ' + b"[" * 950 + b"]" * 950 + b', "flow_control": 1}}',
        b'{"config": {"description": "' + b"x" * 100_000 + b'"}}',
    ],
)
def test_what_could_push_or_cannot_be_read_is_refused(request_: bytes) -> None:
    assert isinstance(pulled_only(request_), str)


def test_the_server_is_told_what_was_judged_and_the_log_on_one_line() -> None:
    twice = b'{"config": {"deliver_subject": "x"}, "config": {"name": "a"}}'

    assert pulled_only(twice) == b'{"config": {"name": "a"}}'
    assert str(pulled_only(b'{"config": {"a\\nERROR all is lost\\u001b": 1}}')).isprintable()


@pytest.mark.nats
async def test_lines_that_a_consumer_pushes_to_where_requests_are_heard_are_none(
    connection: Connection,
) -> None:
    heard, listens = list[bytes](), asyncio.Event()

    async def handle(message: Message) -> None:
        heard.append(message.data)
        await connection.publish(message.reply, b"{}")

    listening = asyncio.create_task(listen(connection, {"logship.x": handle}, listens))
    await listens.wait()
    for line in (b"a line", b"another"):
        await connection.ask("logs.p0.web01", line)
    for policy in ("none", "explicit"):
        config = {"name": policy, "ack_policy": policy, "deliver_subject": "logship.x"}
        body = {"stream_name": "LOGS", "config": config}
        await connection.api(f"CONSUMER.CREATE.LOGS.{policy}", body)
        async with asyncio.timeout(20):
            info = f"CONSUMER.INFO.LOGS.{policy}"
            while (await connection.api(info))["delivered"]["stream_seq"] < 2:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
    await connection.request("logship.x", b"a request")

    assert heard == [b"a request"]
    listening.cancel()
