"""A receiver reads the offsets of all partitions, since a host's lines may follow those in another one, and writes its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.client import bucket
from broker.client.config import current_partitions, existing_partitions
from broker.client.connection import Connection, Rejected
from broker.wire.streams import OFFSETS_BUCKET
from tests.secured import Secured

pytestmark = pytest.mark.nats


def by(server: Secured, name: str, act: Callable[[Connection], Awaitable[Any]]) -> Any:
    async def do() -> Any:
        connection = Connection([server.address], name, server.access(name))
        try:
            return await act(connection)
        finally:
            await connection.close()

    return asyncio.run(do())


@pytest.mark.parametrize("name", ["r0", "everything"])
def test_every_receiver_reads_the_offset_of_any_partition(server: Secured, name: str) -> None:
    entry = by(server, name, lambda c: bucket.read(c, OFFSETS_BUCKET, "p1"))

    assert b'"partition": 1' in entry.value


def test_a_receiver_of_all_learns_how_many_partitions_exist_and_one_of_some_need_not(
    server: Secured,
) -> None:
    assert by(server, "everything", existing_partitions) == 2
    assert by(server, "r0", current_partitions) == 2
    with pytest.raises(Rejected, match="ermission"):
        by(server, "r0", existing_partitions)
