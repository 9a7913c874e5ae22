"""Configurations go to another broker and back as the nats CLI writes them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.commands.apply import exported, plan_import, read_stream
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
    with TemporaryDirectory() as folder:
        read = [_read(Path(folder) / name, text) for name, text in files.items()]
    return await plan_import(connection, read)


def _read(file: Path, text: str) -> Step:
    file.write_text(text)
    return read_stream(file)


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
    assert {one.kind for one in left} == {"entry"}


@pytest.mark.nats
async def test_a_stream_that_is_not_whole_is_not_opened(connection: Connection) -> None:
    await apply(connection, TOPOLOGY)
    files = await exported(connection)
    config = (await connection.api("STREAM.INFO.KV_LOGS_CONFIG"))["config"]
    await connection.api("STREAM.UPDATE.KV_LOGS_CONFIG", marked(config))

    with pytest.raises(ConfigurationError, match=r"KV_LOGS_CONFIG.*logbroker restore"):
        await planned(connection, files)


def test_a_stream_is_read_as_the_nats_cli_writes_it(tmp_path: Path) -> None:
    config = {"name": "S", "max_age": 5, "metadata": {"_nats.ver": "1", "owner": "ops"}}

    found = _read(tmp_path / "S.json", json.dumps(config))

    assert found == Step("stream", "S", {**config, "metadata": {"owner": "ops"}})


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[" * 10**5, "[]", '{"name": "a", "metadata": 1}', '{"name": "a", "subjects": "b"}'),
        *('{"name": "a b"}', '{"name": 1}', '{"ack_policy": "all"}'),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"x\.json is not the JSON of a stream"):
        _read(tmp_path / "x.json", text)
