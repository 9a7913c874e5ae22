"""A monitor reads everything, by a consumer of its own where that is needed, and no answer of its goes to where it may not publish."""

import json

import pytest

from broker.app.exits import OperatorError
from broker.auth.permissions import API
from broker.client.connection import Connection
from broker.inspect.reader import MessageReader, at_sequence
from broker.wire.subjects import reader_names
from tests.broker.auth.oracle import everything
from tests.raw import Heard, Raw
from tests.secured import Secured
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

INBOX = "_INBOX_watch"
READS = {
    f"{API}.INFO": None,
    f"{API}.STREAM.LIST": None,
    f"{API}.STREAM.NAMES": None,
    f"{API}.STREAM.INFO.LOGS": {"subjects_filter": ">"},
    f"{API}.STREAM.INFO.KV_LOGS_OFFSETS": None,
    f"{API}.STREAM.MSG.GET.LOGS": {"seq": 1},
    f"{API}.STREAM.MSG.GET.KV_LOGS_POSITIONS": {"seq": 1},
    f"{API}.CONSUMER.LIST.LOGS": None,
    f"{API}.CONSUMER.NAMES.LOGS": None,
    f"{API}.CONSUMER.INFO.LOGS.receiver-p0": None,
    "$SYS.REQ.SERVER.PING.VARZ": None,
}


@pytest.mark.parametrize("subject", READS)
def test_it_is_answered_as_one_inside_the_account_of_the_stream(
    server: Secured, own: Raw, subject: str
) -> None:
    inside = own.ask(subject.replace(API, "$JS.API"), READS[subject])

    with Raw(server.port, "watch") as client:
        answer = client.ask(subject, READS[subject], INBOX)

    assert answer.keys() == inside.keys()
    assert answer.get("type") == inside.get("type")
    assert "error" not in answer


def test_it_reads_a_batch_and_the_value_of_a_key(server: Secured) -> None:
    heard: list[Heard] = []

    with Raw(server.port, "watch") as client:
        client.subscribe(f"{INBOX}.>")
        request = json.dumps({"seq": 1, "batch": 2}).encode()
        heard += [client.publish(f"{API}.DIRECT.GET.LOGS", request, f"{INBOX}.x")]
        key = "KV_LOGS_OFFSETS.$KV.LOGS_OFFSETS.p1"
        heard += [client.publish(f"{API}.DIRECT.GET.{key}", b"", f"{INBOX}.y")]

        def has_come() -> bool:
            heard.append(client.say(b""))
            return sum(len(one.messages) for one in heard) >= 4

        wait_until("all has come", has_come, 30, [])

    said = b" ".join(payload for one in heard for _, payload in one.messages)
    assert b"logs.p0.web01" in said
    assert b'"partition": 1' in said


def test_it_reads_through_a_consumer_of_its_own_and_removes_that(server: Secured, own: Raw) -> None:
    before = everything(own)
    config = {"name": "reader-watch-0", "ack_policy": "none", "mem_storage": True}
    heard: list[Heard] = []

    with Raw(server.port, "watch") as client:
        body = {"stream_name": "LOGS", "config": config, "action": "create"}
        made = client.ask(f"{API}.CONSUMER.CREATE.LOGS.reader-watch-0", body, INBOX)
        client.subscribe(f"{INBOX}.pull")
        pull = f"{API}.CONSUMER.MSG.NEXT.LOGS.reader-watch-0"
        heard += [client.publish(pull, b'{"batch": 3}', f"{INBOX}.pull")]

        def has_come() -> bool:
            heard.append(client.say(b""))
            return sum(len(one.messages) for one in heard) >= 3

        wait_until("lines have come", has_come, 30, [])
        client.ask(f"{API}.CONSUMER.DELETE.LOGS.reader-watch-0", None, INBOX)

    assert made["name"] == "reader-watch-0"
    assert everything(own) == before


async def test_its_readers_have_names_of_their_own_and_one_too_many_is_told(
    server: Secured,
) -> None:
    connection = Connection([server.address], "watch", access=server.access("watch"))
    readers = [MessageReader(connection, "LOGS", at_sequence(1)) for _ in reader_names("watch")]
    try:
        found = [await reader.follow() for reader in readers]
        assert {one[0].name for one in found} == {"logs.p0.web01"}
        with pytest.raises(OperatorError, match="24 readers of this monitor are at work"):
            await MessageReader(connection, "LOGS", at_sequence(1)).follow()
    finally:
        for reader in readers:
            await reader.close()
        await connection.close()
