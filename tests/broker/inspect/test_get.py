"""`logbroker get` finds a message by its place, or says what is there."""

import pytest

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.inspect.ask import get_message
from broker.inspect.message import message_document, message_text
from tests.broker.inspect.conftest import Publish


@pytest.mark.nats
async def test_a_message_is_shown_with_its_origin_and_its_lines(
    connection: Connection, publish: Publish
) -> None:
    await publish("web01", b"first\n")
    sequence = await publish("web01", b"one\ntwo\n", compressed=True)

    found = await get_message(connection, "LOGS", sequence)

    assert found == await get_message(connection, "LOGS", None)
    shown = message_document(found)
    assert (shown["text"], shown["host"], shown["partition"]) == ("one\ntwo\n", "web01", 0)
    (span,) = shown["spans"]
    assert (span["file"], span["size"], span["lines"]) == ("/var/log/app.log", 8, 2)
    assert shown["headers"]["Log-Agent"] == shown["agent"] == "1-0000000a"
    assert message_text(found).endswith(b"\n\none\ntwo\n")


@pytest.mark.nats
async def test_a_message_that_is_not_there_says_what_is(
    connection: Connection, publish: Publish
) -> None:
    with pytest.raises(OperatorError, match="holds none"):
        await get_message(connection, "LOGS", 1)
    for _ in range(3):
        await publish("web01", b"a\n")
    await connection.api("STREAM.MSG.DELETE.LOGS", {"seq": 2})

    with pytest.raises(OperatorError, match="no message 9: stream LOGS holds 1 to 3"):
        await get_message(connection, "LOGS", 9)
    with pytest.raises(OperatorError, match="no message 2"):
        await get_message(connection, "LOGS", 2)
