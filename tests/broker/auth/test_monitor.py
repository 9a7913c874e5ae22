"""A monitor reads everything, through consumers of its own."""

import asyncio

import pytest

from broker.auth.permissions import API
from broker.inspect.reader import MessageReader
from nats_logship.app.exits import OperatorError
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.subjects import reader_names
from tests.broker.auth.oracle import everything
from tests.raw import Raw
from tests.secured import Secured

pytestmark = pytest.mark.nats

INBOX = "_INBOX_watch"
READS = {
    f"{API}.STREAM.LIST": None,
    f"{API}.STREAM.INFO.LOGS": {"subjects_filter": ">"},
    f"{API}.CONSUMER.NAMES.LOGS": None,
    "$SYS.REQ.SERVER.PING.VARZ": None,
}


@pytest.mark.parametrize("subject", READS)
def test_a_monitor_gets_the_answers_of_the_account_of_the_stream(
    server: Secured, own: Raw, subject: str
) -> None:
    inside = own.ask(subject.replace(API, "$JS.API"), READS[subject])

    with Raw(server.port, "watch") as client:
        answer = client.ask(subject, READS[subject], INBOX)

    assert answer.keys() == inside.keys()
    assert answer.get("type") == inside.get("type")
    assert "error" not in answer


async def test_a_monitor_has_24_readers_of_its_own_which_leave_nothing(
    server: Secured, own: Raw
) -> None:
    before = everything(own)
    connection = Connection([server.address], "watch", access=server.access("watch"))
    readers = [MessageReader(connection, "LOGS", at_sequence(1)) for _ in reader_names("watch")]
    try:
        found = [await reader.follow() for reader in readers]
        assert {one[0].name for one in found} == {"logs.p0.web01"}
        with pytest.raises(OperatorError, match="all 24 consumers that this monitor may create"):
            await MessageReader(connection, "LOGS", at_sequence(1)).follow()
    finally:
        for reader in readers:
            await reader.close()
        await connection.close()
    assert everything(own) == before


async def test_empty_messages_do_not_end_a_read(server: Secured, own: Raw) -> None:
    lines = [None, 1, None, None, 2, None]
    last = [own.ask("logs.p0.web02", line)["seq"] for line in lines][-1]
    connection = Connection([server.address], "watch", access=server.access("watch"))
    reader = MessageReader(connection, "LOGS", at_sequence(last - 5))

    async with asyncio.timeout(30):
        found = [one.payload async for one in reader.read_all(last)]

    await connection.close()
    assert found == [b"", b"1", b"", b"", b"2", b""]
