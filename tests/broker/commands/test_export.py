"""Configurations go to another broker and back as the nats CLI writes them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.commands.apply import exported, parse, plan_import
from broker.provision.apply import apply, carry_out
from broker.provision.plan import Step
from broker.topology import Topology
from broker.wire.descent import marked

TOPOLOGY = Topology(partitions=11, max_bytes=10**8)


@pytest.fixture
async def connection(fresh_url: str) -> AsyncIterator[Connection]:
    connection = Connection([fresh_url], "test")
    yield connection
    await connection.close()


@pytest.fixture
async def other(own_server: Any) -> AsyncIterator[Connection]:
    connection = Connection([own_server.url], "test")
    yield connection
    await connection.close()


async def planned(connection: Connection, files: dict[str, str]) -> tuple[Step, ...]:
    return await plan_import(connection, [parse(*file) for file in files.items()])


@pytest.mark.nats
async def test_what_was_exported_gives_an_empty_broker_the_same_configuration(
    connection: Connection, other: Connection
) -> None:
    await apply(connection, TOPOLOGY)
    files = await exported(connection)

    await carry_out(other, await planned(other, files))

    assert await exported(other) == files
    assert not (await planned(other, files))
    assert not (await planned(connection, files))
    left = await apply(other, TOPOLOGY)
    assert {one.name for one in left} == {"LOGS_CONFIG/partitions", "LOGS_CONFIG/streams"}


@pytest.mark.nats
async def test_a_stream_that_is_not_whole_is_not_opened(connection: Connection) -> None:
    await apply(connection, TOPOLOGY)
    files = await exported(connection)
    config = (await connection.api("STREAM.INFO.KV_LOGS_CONFIG"))["config"]
    await connection.api("STREAM.UPDATE.KV_LOGS_CONFIG", marked(config))

    with pytest.raises(ConfigurationError, match=r"KV_LOGS_CONFIG.*logbroker restore"):
        await planned(connection, files)


STREAM = {"name": "S", "max_age": 5, "metadata": {"_nats.ver": "1", "owner": "ops"}}
CONSUMER = {"durable_name": "c", "ack_policy": "all", "filter_subject": None}
READ_STREAM = Step("stream", "S", {**STREAM, "metadata": {"owner": "ops"}})
READ_CONSUMER = Step("consumer", "c", {"durable_name": "c", "ack_policy": "all"}, "S")


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("S.json", STREAM, READ_STREAM),
        ("S.c.json", CONSUMER, READ_CONSUMER),
    ],
)
def test_each_form_of_the_nats_cli_is_read(name: str, content: object, wanted: Step) -> None:
    assert parse(name, json.dumps(content)) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not the JSON of"),
        ("[" * 10**5, "is not the JSON of"),
        ("[]", "is not the JSON of"),
        ('{"name": "a", "metadata": 1}', "is not the JSON of"),
        ('{"name": "a", "subjects": "b"}', "is not the JSON of"),
        ('{"name": "a b"}', "'a b' is no name"),
        ('{"ack_policy": "all"}', "None is no name"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse("x.json", text)
