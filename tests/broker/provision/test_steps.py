"""What a plan refuses to change in place is what a real server refuses."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from broker.client.connection import Connection, Rejected
from broker.provision.steps import ResourceKind, Wanted, compare

STILL_THERE = 10049  # "error creating store for stream"
LOGS = {"name": "LOGS", "subjects": ["logs.>"], "max_age": 86_400 * 10**9}
COPY = {"name": "LOGS", "mirror": {"name": "A"}}
READER = {"durable_name": "reader", "name": "reader", "ack_policy": "all", "deliver_policy": "all"}

STREAMS = [
    ({}, {"storage": "memory"}),
    ({"storage": "memory"}, {"storage": "file"}),
    ({"discard": "old"}, {"discard": "new"}),
    ({}, {"max_msgs": 3, "max_bytes": 5000, "max_msg_size": 500, "max_msgs_per_subject": 2}),
    ({"compression": "s2"}, {"compression": "none"}),
    ({}, {"placement": {"cluster": "x", "tags": ["y"]}}),
    ({}, {"sources": [{"name": "A"}]}),
    ({}, {"mirror": {"name": "A"}, "subjects": []}),
    ({}, {"description": "x", "metadata": {"a": "b"}}),
    ({}, {"subjects": ["other.>"]}),
]
CONSUMERS = [
    {"deliver_policy": "new"},
    {"ack_policy": "explicit"},
    {"replay_policy": "original"},
    {"max_waiting": 9},
    {"mem_storage": True},
    {"ack_wait": 10**9, "max_deliver": 3, "max_ack_pending": 5, "filter_subject": "logs.a"},
    {"headers_only": True, "inactive_threshold": 10**9, "max_batch": 3, "max_expires": 10**9},
    {"description": "x", "metadata": {"a": "b"}},
]


@pytest.fixture
async def connection(fresh_url: str) -> AsyncIterator[Connection]:
    connection = Connection([fresh_url], "test")
    yield connection
    await connection.close()


async def is_refused(connection: Connection, subject: str, body: dict[str, Any]) -> bool:
    try:
        await connection.api(subject, body)
    except Rejected:
        return True
    return False


async def made_of(connection: Connection, config: Mapping[str, Any]) -> dict[str, Any]:
    """Make a stream; where the one before is still being removed from the disk, in a moment."""
    for _ in range(100):
        try:
            return await connection.api("STREAM.CREATE.LOGS", config)
        except Rejected as error:
            if error.error != STILL_THERE:
                raise
        await asyncio.sleep(0.05)
    raise AssertionError("never made")


@pytest.mark.nats
async def test_a_stream_is_updated_or_refused_as_a_real_server_does_it(
    connection: Connection,
) -> None:
    for begin, change in STREAMS:
        made = await made_of(connection, {**LOGS, **begin})
        refused = bool(
            compare(Wanted(ResourceKind.STREAM, "LOGS", change), made["config"]).refusals
        )

        really = await is_refused(connection, "STREAM.UPDATE.LOGS", {**made["config"], **change})
        await connection.api("STREAM.DELETE.LOGS")

        assert refused == really, (begin, change)


@pytest.mark.nats
async def test_a_consumer_is_updated_or_refused_as_a_real_server_does_it(
    connection: Connection,
) -> None:
    await connection.api("STREAM.CREATE.LOGS", LOGS)
    subject = "CONSUMER.CREATE.LOGS.reader"
    for change in CONSUMERS:
        made = await connection.api(subject, {"stream_name": "LOGS", "config": READER})
        wanted = Wanted(ResourceKind.CONSUMER, "reader", change, "LOGS")
        refused = bool(compare(wanted, made["config"]).refusals)

        body = {"stream_name": "LOGS", "config": {**made["config"], **change}, "action": "update"}
        really = await is_refused(connection, subject, body)
        await connection.api("CONSUMER.DELETE.LOGS.reader")

        assert refused == really, change


@pytest.mark.nats
async def test_a_copy_becomes_a_stream_of_its_own_and_never_another_copy(
    connection: Connection,
) -> None:
    for change in ({"mirror": {"name": "B"}}, {"mirror": None, "subjects": ["logs.>"]}):
        made = await connection.api("STREAM.CREATE.LOGS", COPY)
        refused = bool(
            compare(Wanted(ResourceKind.STREAM, "LOGS", change), made["config"]).refusals
        )

        really = await is_refused(connection, "STREAM.UPDATE.LOGS", {**made["config"], **change})
        await connection.api("STREAM.DELETE.LOGS")

        assert refused == really, change


def test_metadata_of_others_stays() -> None:
    found = {"name": "LOGS", "metadata": {"_nats.ver": "2.15.1", "theirs": "1", "ours": "old"}}
    wanted = Wanted(ResourceKind.STREAM, "LOGS", {"metadata": {"ours": "new"}})

    (step,) = compare(wanted, found).steps

    assert step.config["metadata"] == {"_nats.ver": "2.15.1", "theirs": "1", "ours": "new"}
    assert not compare(wanted, step.config).steps
