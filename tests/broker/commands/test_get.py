"""`logbroker get` says of every message what it holds, also if that is no line."""

import json

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.message import Followed, Origin, Section, Span, encode_origin
from tests.broker.conftest import Call, ask

pytestmark = pytest.mark.nats

AGENT = {"agent": "1-0000000a", "read_at": 1}


def section(lines: int, size: int) -> Section:
    return Section("/var/log/a", Span("1-a", 0, 9), size, lines, filtered=True)


@pytest.mark.parametrize(
    ("origin", "payload", "text"),
    [
        (Origin(**AGENT), b"", "no lines: a shipper claimed the host, as each one does when"),
        (Origin(**AGENT, follows=(Followed(1, 1),)), b"", "no lines: a shipper claimed the host"),
        (
            Origin(**AGENT, moved=3),
            b"",
            "no lines: from here on the host's lines are in partition 3",
        ),
        (Origin(**AGENT, sections=(section(0, 0),)), b"", "no lines: a shipper has read on, and"),
        (Origin(**AGENT, sections=(section(2, 4),)), b"a\nb\n", "2 lines\n"),
        (Origin(**AGENT, sections=(section(0, 4),)), b"abcd", "4 bytes of a line that goes on in"),
        (None, b"hello", "5 bytes of a client that is no shipper\n"),
        (None, b"", "nothing\n"),
    ],
)
def test_a_message_without_lines_says_what_it_is(
    call: Call, logs_url: str, origin: Origin | None, payload: bytes, text: str
) -> None:
    async def publish(connection: Connection) -> None:
        headers = encode_origin(origin) if origin else {}
        await connection.ask("logs.p0.web01", payload, headers)

    ask(logs_url, publish)

    shown = call("get", "1")

    assert f"\nholds           {text}" in shown.stdout, shown.stderr


def test_a_message_of_records_shows_them_whole_and_what_begins_one(
    call: Call, logs_url: str
) -> None:
    trace = b"1 failed\nTraceback:\n  at a\nValueError\n"
    one = Section("/var/log/a", Span("1-a", 0, 37), 37, 4, records="start:^[0-9]")

    async def publish(connection: Connection) -> None:
        headers = encode_origin(Origin(**AGENT, sections=(one,)))
        await connection.ask("logs.p0.web01", trace, headers)

    ask(logs_url, publish)

    shown, as_json = call("get", "1"), call("get", "1", "--json")

    assert "/var/log/a, bytes [0, 37), records by start:^[0-9]\n" in shown.stdout, shown.stderr
    assert shown.stdout.endswith(f"\n\n{trace.decode()}")
    assert json.loads(as_json.stdout)["text"] == trace.decode()
    assert json.loads(as_json.stdout)["spans"][0]["records"] == "start:^[0-9]"
