"""Who has no right to make a consumer that pushes gets none; and a broker answers for itself once, whoever asks."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from broker.client.answer import Rejected
from broker.client.connection import Connection
from broker.server.requests import pulled_only, refuse_pushes

PULLED = {"name": "shipper-web01", "filter_subject": "logs.*.web01", "ack_policy": "none"}


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


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    made = Connection([logs_url], "tests")
    yield made
    await made.close()


async def make(connection: Connection, name: str, pushes_to: str | None = None) -> None:
    config = {"name": name, "ack_policy": "none", "filter_subject": "logs.*.web01"}
    config |= {"deliver_subject": pushes_to} if pushes_to else {}
    await connection.api(
        f"CONSUMER.CREATE.LOGS.{name}.logs.*.web01", {"stream_name": "LOGS", "config": config}
    )


async def is_there(connection: Connection, name: str) -> bool:
    try:
        await connection.api(f"CONSUMER.INFO.LOGS.{name}")
    except Rejected:
        return False
    return True


async def goes(connection: Connection, name: str) -> None:
    async with asyncio.timeout(20):
        while await is_there(connection, name):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)


MISUSED = [
    "$JS.API.STREAM.PURGE.LOGS",
    "$JS.hub.API.STREAM.PURGE.LOGS",
    "logship.receiver.r0.x",
    "logship.broker",
]


@pytest.mark.nats
async def test_one_that_pushes_to_where_lines_act_is_removed_whenever_it_was_made_and_others_stay(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await make(connection, "shipper-before", "$KV.LOGS_OFFSETS.p1")
    await make(connection, "shipper-pulled")
    watching = asyncio.create_task(refuse_pushes(connection, lambda: ["LOGS"]))

    await goes(connection, "shipper-before")
    await make(connection, "tail", "tail")
    await make(connection, "copy", "$JS.S.Yk3")
    for number, subject in enumerate(MISUSED):
        await make(connection, f"late{number}", subject)
        await goes(connection, f"late{number}")

    for name in ("shipper-pulled", "tail", "copy"):
        assert await is_there(connection, name)
    watching.cancel()
    await asyncio.wait({watching})
    assert "removed consumer shipper-before" in caplog.text
