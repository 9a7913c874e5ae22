import asyncio
import base64
import json
import subprocess

import pytest
from click.testing import CliRunner

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.commands.status import get
from broker.inspect.get import get_message, message_json, message_text
from broker.inspect.message import read_message
from tests.broker.conftest import LOGBROKER
from tests.broker.inspect.conftest import Publish, message


def test_lines_that_are_no_text_come_as_base64() -> None:
    payload, headers = message(b"\xff\n", compressed=True)

    found = json.loads(message_json(read_message("logs.p0.web01", 1, 0, headers, payload)))

    assert base64.b64decode(found["base64"]) == b"\xff\n"
    assert "text" not in found


def test_a_message_that_a_receiver_quarantines_says_why() -> None:
    _, headers = message(b"x\n", compressed=True)
    found = read_message("logs.p0.web01", 1, 0, headers, b"no frame \x1b[2J")

    shown = message_text(found)

    assert b"TROUBLE" in shown
    assert b"\x1b" not in shown
    assert json.loads(message_json(found))["trouble"]


@pytest.mark.parametrize("payload", [b"a\nb", b"a\nb\nc\n", b""])
def test_a_message_whose_sections_are_not_its_payload_is_shown_as_it_is_and_says_so(
    payload: bytes,
) -> None:
    _, headers = message(b"a\n", more=(("/b", b"b\n"),))
    found = read_message("logs.p0.web01", 1, 0, headers, payload)

    shown = json.loads(message_json(found))

    assert (shown["text"], shown["trouble"]) == (
        payload.decode(),
        f"sections of 4 bytes, lines of {len(payload)}",
    )
    assert b"TROUBLE" in message_text(found)


def test_every_section_of_a_message_is_shown_with_its_file_and_span() -> None:
    payload, headers = message(b"a\n", more=(("/b c", b"d\ne\n"), ("/var/log/app.log", b"")))
    found = read_message("logs.p0.web01", 1, 0, headers, payload)

    spans = json.loads(message_json(found))["spans"]
    text = message_text(found).decode()

    assert [(one["file"], one["start"], one["end"], one["lines"]) for one in spans] == [
        ("/var/log/app.log", 0, 2, 1),
        ("/b c", 0, 4, 2),
        ("/var/log/app.log", 0, 0, 0),
    ]
    assert spans[1] | {"id": ""} == {
        **{"file": "/b c", "id": "", "start": 0, "end": 4, "size": 4, "lines": 2},
        "filtered": False,
    }
    assert [line.split()[1] for line in text.splitlines() if line.startswith("span ")] == [
        "/var/log/app.log",
        "/b",
        "/var/log/app.log",
    ]
    assert "Log-Spans" not in text
    assert text.endswith("\n\na\nd\ne\n")


def test_a_claim_has_no_spans() -> None:
    headers = {"Log-Agent": "1-0000000a", "Log-Read-At": "5"}

    shown = json.loads(message_json(read_message("logs.p0.web01", 1, 0, headers, b"")))

    assert (shown["agent"], shown["spans"], shown["trouble"]) == ("1-0000000a", [], None)


def test_a_header_does_not_act_on_a_terminal_by_its_name() -> None:
    assert b"\x1b" not in message_text(
        read_message("logs.p0.web01", 1, 0, {"\x1b[2J": "x"}, b"a line\n")
    )


@pytest.mark.nats
async def test_a_message_is_shown_with_its_origin_and_its_lines(
    connection: Connection, publish: Publish
) -> None:
    await publish("web01", b"first\n")
    sequence = await publish("web01", b"one\ntwo\n", compressed=True)

    found = await get_message(connection, "LOGS", sequence)

    assert found == await get_message(connection, "LOGS", None)
    assert found.lines() == b"one\ntwo\n"
    shown = json.loads(message_json(found))
    assert (shown["text"], shown["host"], shown["partition"]) == ("one\ntwo\n", "web01", 0)
    (span,) = shown["spans"]
    assert (span["file"], span["size"], span["lines"]) == ("/var/log/app.log", 8, 2)
    assert shown["headers"]["Log-Agent"] == shown["agent"] == "1-0000000a"
    assert message_text(found).endswith(b"\n\none\ntwo\n")


@pytest.mark.nats
async def test_a_message_that_is_not_there_says_what_is(
    connection: Connection, publish: Publish
) -> None:
    with pytest.raises(OperatorError, match="holds no messages"):
        await get_message(connection, "LOGS", 1)
    for _ in range(3):
        await publish("web01", b"a\n")
    await connection.api("STREAM.MSG.DELETE.LOGS", {"seq": 2})

    with pytest.raises(OperatorError, match="no message 9: stream LOGS holds 1 to 3"):
        await get_message(connection, "LOGS", 9)
    with pytest.raises(OperatorError, match="message 2 was removed"):
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
