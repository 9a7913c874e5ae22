"""A host writes its positions under its own key, and reaches no other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.auth.permissions import API
from nats_logship.client import bucket
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import POSITIONS_BUCKET, positions_key
from tests.broker.auth.forbidden import HOSTS
from tests.broker.auth.oracle import answers, everything
from tests.raw import Raw
from tests.secured import Secured

pytestmark = pytest.mark.nats

OWN_KEY = "$KV.LOGS_POSITIONS.web01"
READ = f"{API}.DIRECT.GET.KV_LOGS_POSITIONS.{OWN_KEY}"


def by(server: Secured, host: str, act: Callable[[Connection], Awaitable[Any]]) -> Any:
    """Return the result of an action on a connection of the host."""

    async def do() -> Any:
        connection = Connection([server.address], host, server.access(host))
        try:
            return await act(connection)
        finally:
            await connection.close()

    return asyncio.run(do())


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_reads_and_writes_its_own_positions_by_compare_and_set(
    server: Secured, host: str
) -> None:
    key = positions_key(host)

    async def exchange(connection: Connection) -> bytes:
        before = await bucket.read(connection, POSITIONS_BUCKET, key)
        assert before is not None
        await bucket.write(connection, POSITIONS_BUCKET, key, before.value, before.revision)
        with pytest.raises(bucket.Conflict):
            await bucket.write(connection, POSITIONS_BUCKET, key, b"late", before.revision)
        return before.value

    assert by(server, host, exchange) == f'"positions of {host}"'.encode()


@pytest.mark.parametrize("operation", ["DEL", "PURGE"])
def test_a_host_deletes_its_own_positions_only(server: Secured, own: Raw, operation: str) -> None:
    def of_others() -> list[Any]:
        messages = everything(own)["KV_LOGS_POSITIONS"][2]
        return [one for one in messages if one.get("message", {}).get("subject") != OWN_KEY]

    before = [one for one in of_others() if "message" in one]

    async def delete(connection: Connection) -> None:
        await connection.ask(OWN_KEY, b"", {"KV-Operation": operation})
        assert await bucket.read(connection, POSITIONS_BUCKET, "web01") is None
        await bucket.write(connection, POSITIONS_BUCKET, "web01", b"positions of web01", 0)

    by(server, "web01", delete)

    assert [one for one in of_others() if "message" in one] == before
    assert len(before) == len(HOSTS) - 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq": 2}',
        b'{"seq": 1, "batch": 10}',
        b'{"last_by_subj": "$KV.LOGS_POSITIONS.web02"}',
        b'{"next_by_subj": "$KV.LOGS_POSITIONS.>", "seq": 1, "batch": 10}',
        b'{"multi_last": ["$KV.LOGS_POSITIONS.>"]}',
    ],
)
def test_the_body_of_a_read_reaches_no_other_subject(server: Secured, body: bytes) -> None:
    with Raw(server.port, "web01") as client:
        client.subscribe("_INBOX_web01.>")
        heard = answers(client, client.publish(READ, body, "_INBOX_web01.x"))

    said = b"".join(payload for _, payload in heard)
    assert b"positions of" not in said.replace(b"positions of web01", b"")
    assert b"positions of web01." not in said
