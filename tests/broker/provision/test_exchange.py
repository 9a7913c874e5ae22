from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.provision.apply import apply, carry_out
from broker.provision.comparing import Wanted
from broker.provision.document import Document, read, text
from broker.provision.exchange import gather, overruled, plan_document
from broker.provision.steps import Kind
from broker.topology import Topology
from broker.wire.descent import marked

pytestmark = pytest.mark.nats

TOPOLOGY = Topology(
    partitions=11,
    max_msgs=10**6,
    max_bytes=10**8,
    max_msg_size=10**6,
    max_msgs_per_subject=10**5,
    max_consumers=100,
    discard_new_per_subject=True,
    compression="s2",
    placement_tags=("ssd",),
    description="lines",
    metadata=("owner=ops",),
)


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


async def test_what_was_exported_gives_an_empty_broker_the_same_configuration(
    connection: Connection, other: Connection
) -> None:
    await apply(connection, TOPOLOGY)
    exported = text(await gather(connection, ()))

    document = read("-", exported)
    await carry_out(other, await plan_document(other, document))

    assert text(await gather(other, ())) == exported
    assert not (await plan_document(other, document)).steps
    assert not (await plan_document(connection, document)).steps
    assert (await apply(other, TOPOLOGY)).steps == ()
    assert [one.name for one in document.wanted[-2:]] == ["receiver-p9", "receiver-p10"]


async def test_a_stream_of_any_kind_can_be_exported_alone(connection: Connection) -> None:
    await apply(connection, Topology(partitions=1))
    body = {"name": "COPY", "mirror": {"name": "LOGS"}, "storage": "memory", "mirror_direct": True}
    await connection.api("STREAM.CREATE.COPY", body)

    document = await gather(connection, {"COPY"})

    assert [one.name for one in document.wanted] == ["COPY"]
    assert document.partitions is None
    assert not (await plan_document(connection, document)).steps
    with pytest.raises(ConfigurationError, match="no such stream: NONE"):
        await gather(connection, {"NONE", "LOGS"})


async def test_only_what_a_document_names_is_changed(connection: Connection) -> None:
    await apply(connection, TOPOLOGY)

    made = await plan_document(connection, read("x", '{"name": "LOGS", "max_msgs": 9000000}'))
    await carry_out(connection, made)

    assert [change.field for step in made.steps for change in step.changes] == ["max_msgs"]
    assert (await apply(connection, replace(TOPOLOGY, max_msgs=9_000_000))).steps == ()


async def test_another_number_of_partitions_is_refused_under_stored_lines(
    connection: Connection,
) -> None:
    await apply(connection, Topology(partitions=2))
    await connection.ask("logs.p0.web01", b"line\n")

    made = await plan_document(connection, Document((), 3))

    assert "is 2 and not 3" in made.refusals[0]


async def test_what_the_settings_set_back_is_told() -> None:
    imported = Topology(max_age=timedelta(days=2), replicas=3).streams()[0]
    document = Document((Wanted(Kind.STREAM, "LOGS", imported),))

    (change,) = overruled(Topology(), document)

    assert (change.field, change.after) == ("max_age", 86_400 * 10**9)


async def test_a_stream_that_is_not_whole_is_not_opened(connection: Connection) -> None:
    await apply(connection, TOPOLOGY)
    document = await gather(connection, ())
    config = (await connection.api("STREAM.INFO.KV_LOGS_CONFIG"))["config"]
    await connection.api("STREAM.UPDATE.KV_LOGS_CONFIG", marked(config))

    with pytest.raises(ConfigurationError, match=r"KV_LOGS_CONFIG.*logbroker restore"):
        await plan_document(connection, document)
