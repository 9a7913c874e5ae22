"""Single messages of a stream, and headers by which a client imitates the server's."""

import pytest

from nats_logship.client.connection import Connection
from nats_logship.client.find import find_last, find_message
from nats_logship.wire.streams import STREAM

pytestmark = pytest.mark.nats

IMITATED = {"Nats-Sequence": "none", "Nats-Time-Stamp": "never", "Nats-Subject": "logs.p0.web09"}
IMITATED |= {"Status": "404", "Own": "kept"}


async def test_a_clients_headers_do_not_replace_the_servers(connection: Connection) -> None:
    await connection.ask("logs.p0.web01", b"a\n", IMITATED)

    last = await find_last(connection, STREAM, "logs.*.web01")
    by_leader = await find_message(connection, STREAM, {"seq": 1})

    assert last is not None
    assert by_leader is not None
    assert (last.subject, last.sequence, last.payload) == ("logs.p0.web01", 1, b"a\n")
    assert last.headers["Own"] == by_leader.headers["Own"] == "kept"
    assert last.stored_at == by_leader.stored_at


async def test_a_subject_without_messages_has_no_last_one(connection: Connection) -> None:
    assert await find_last(connection, STREAM, "logs.p0.web02") is None
    assert await find_message(connection, STREAM, {"seq": 1}) is None
