"""A message of a stream: its headers, with and without its payload, and how it is shown."""

import base64

import pytest

from broker.inspect.message import format_message, json_object, serialize_message
from broker.inspect.reader import get_message
from nats_logship.app.exits import OperatorError
from nats_logship.app.text import escape, prefix_lines
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.stream_message import StreamMessage
from tests.broker.inspect.conftest import Publish, message


def _read(headers: dict[str, str], payload: bytes) -> StreamMessage:
    return StreamMessage("logs.p0.web01", 1, 0, headers, payload)


@pytest.mark.parametrize("size", ["²", "9" * 5000, "99999999999999", "-1", ""])
@pytest.mark.parametrize("cut", [0, 2])
def test_a_size_is_that_of_the_server_not_that_of_the_client(size: str, cut: int) -> None:
    """The server replaces the last two bytes of a header block, whatever they are."""
    head = f"NATS/1.0\r\nNats-Msg-Size: {size}\r\nFoo: xx".encode()
    stored = head[: len(head) - cut] + b"Nats-Msg-Size: 7\r\n\r\n"

    assert RawMessage("logs.p0.evil", "", stored, b"").size == 7
    assert RawMessage("logs.p0.evil", "", head, b"").size == 0
    assert RawMessage("logs.p0.evil", "", head + b"\r\n\r\n", b"").size == 0


def test_lines_that_are_not_utf_8_are_base64() -> None:
    payload, headers = message(b"\xff\n", compressed=True)

    found = serialize_message(_read(headers, payload))

    assert base64.b64decode(found["base64"]) == b"\xff\n"
    assert "text" not in found


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("payload", [b"a\nb", b"no frame \x1b[2J", b""])
def test_a_message_that_a_receiver_quarantines_is_shown_with_the_reason(
    payload: bytes, compressed: bool
) -> None:
    _, headers = message(b"a\n", compressed=compressed, more=(("/b", b"b\n"),))
    found = _read({**headers, "\x1b[2J": "x"}, payload)

    shown, text = serialize_message(found), format_message(found)

    assert shown["text"] == payload.decode()
    assert shown["trouble"]
    assert b"TROUBLE" in text
    assert b"\x1b" not in text


def test_control_characters_in_a_host_are_escaped() -> None:
    shown = escape(prefix_lines("logs.\x1b[2J.w\udcff", b"a\n"))

    assert shown == rb"logs.\x1b[2J.w\xff: a" + b"\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param(b"a\tb\n", b"a\tb\n", id="tabs and newlines"),
        pytest.param("Grüße €\n".encode(), "Grüße €\n".encode(), id="letters"),
        pytest.param(b"\x1b]0;owned\x07\n", rb"\x1b]0;owned\x07" + b"\n", id="escape codes"),
        pytest.param("\x9b31m\n".encode(), rb"\x9b31m" + b"\n", id="codes of one character"),
        pytest.param(b"\x9b31m\n", rb"\x9b31m" + b"\n", id="codes that are no UTF-8"),
        pytest.param(b"progress 10%\r\n", rb"progress 10%\r" + b"\n", id="a return"),
        pytest.param("a\u202eb\n".encode(), rb"a\u202eb" + b"\n", id="written backwards"),
    ],
)
def test_control_characters_in_lines_are_escaped(raw: bytes, shown: bytes) -> None:
    assert escape(raw) == shown


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"no", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000),
        *(b'{"a":NaN}', b'{"a":1e400}'),
    ],
)
def test_anything_but_a_json_object_is_none(data: bytes) -> None:
    assert json_object(data) is None


@pytest.mark.nats
async def test_a_missing_message_is_reported_with_those_that_exist(
    connection: Connection, publish: Publish
) -> None:
    with pytest.raises(OperatorError, match="holds none"):
        await get_message(connection, "LOGS", 1)
    for _ in range(3):
        await publish("web01", b"a\n")
    await connection.api("STREAM.MSG.DELETE.LOGS", {"seq": 2})

    assert (await get_message(connection, "LOGS", None)).sequence == 3
    with pytest.raises(OperatorError, match="no message 9: stream LOGS holds 1 to 3"):
        await get_message(connection, "LOGS", 9)
    with pytest.raises(OperatorError, match="no message 2"):
        await get_message(connection, "LOGS", 2)
