"""`logbroker get` finds a message by its place, or says what is there."""

import asyncio
import subprocess

import pytest
from click.testing import CliRunner

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.commands.status import get
from broker.inspect.ask import get_message
from broker.inspect.message import message_document, message_text
from tests.broker.conftest import LOGBROKER
from tests.broker.inspect.conftest import Publish, message


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


@pytest.mark.nats
async def test_raw_is_the_payload_as_it_is_stored(logs_url: str, publish: Publish) -> None:
    payload, _ = message(b"one\ntwo\n", compressed=True)
    await publish("web01", b"one\ntwo\n", compressed=True)

    ended = await asyncio.to_thread(
        subprocess.run,
        [*LOGBROKER, "get", "1", "--raw", "--server", logs_url],
        capture_output=True,
        timeout=20,
    )

    assert ended.stdout == payload


@pytest.mark.parametrize("sequence", ["0", "-1", "x", "", "99999999999999999999"])
def test_what_is_no_sequence_is_refused(sequence: str) -> None:
    ended = CliRunner().invoke(get, ["--", sequence])

    assert ended.exit_code == 2
    assert "is not the sequence of a message" in ended.output
