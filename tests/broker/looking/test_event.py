"""What events say in words. Cores only; the payloads are those of nats-server 2.15.1."""

import json
from typing import Any

import pytest

from broker.looking.event import Event, is_noise, read

_NOW = "2026-11-21T16:00:00Z"
_CLIENT = {"id": 7, "acc": "LOGS", "name": "logshipper web01", "host": "10.0.0.7", "user": "web01"}
_SERVER = {"name": "n1", "time": "2026-11-21T15:59:58.5Z"}


def _read(subject: str, kind: str = "", **data: Any) -> Event:
    told = {"type": f"io.nats.server.advisory.v1.{kind}"} if kind else {}
    return read(subject, json.dumps({**told, **data}).encode(), _NOW)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        pytest.param(
            _read(
                "$JS.EVENT.METRIC.CONSUMER.ACK.LOGS.audit",
                "consumer_ack",
                **{"stream": "LOGS", "consumer": "audit", "stream_seq": 4, "ack_time": 12_340_000},
            ),
            "consumer_ack",
            "LOGS.audit was acknowledged message 4 12.3 ms after its delivery",
            id="a sampled acknowledgement",
        ),
        pytest.param(
            _read(
                "$SYS.ACCOUNT.LOGS.CONNECT",
                "client_connect",
                server=_SERVER,
                client={**_CLIENT, "lang": "python3", "ver": "2.16.0"},
            ),
            "client_connect",
            "logshipper web01 as web01 of account LOGS from 10.0.0.7 connected (python3 2.16.0)",
            id="a client that came",
        ),
        pytest.param(
            _read(
                "$SYS.ACCOUNT.LOGS.DISCONNECT",
                "client_disconnect",
                client=_CLIENT,
                sent={"msgs": 1, "bytes": 10},
                received={"msgs": 2, "bytes": 2048},
                reason="Slow Consumer (Pending Bytes)",
            ),
            "client_disconnect",
            "logshipper web01 as web01 of account LOGS from 10.0.0.7 disconnected: Slow Consumer (Pending Bytes)"
            " (sent 2 messages, 2.0 KiB, was sent 1 messages, 10 B)",
            id="a slow consumer",
        ),
        pytest.param(
            _read(
                "$SYS.SERVER.NID.CLIENT.AUTH.ERR",
                "client_disconnect",
                client={"id": 9, "host": "10.0.0.9"},
                reason="Authentication Failure",
            ),
            "auth_error",
            "client 9 from 10.0.0.9 was refused: Authentication Failure",
            id="a stranger",
        ),
        pytest.param(
            _read(
                "$JS.EVENT.ADVISORY.STREAM.DELETED.LOGS",
                "stream_action",
                stream="LOGS",
                action="delete",
            ),
            "stream_action",
            "stream LOGS was deleted",
            id="a stream",
        ),
        pytest.param(
            _read(
                "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.LOGS.receiver-p0",
                "consumer_leader_elected",
                stream="LOGS",
                consumer="receiver-p0",
                leader="n2",
            ),
            "consumer_leader_elected",
            "n2 leads consumer LOGS.receiver-p0",
            id="a leader",
        ),
        pytest.param(
            _read(
                "$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.LOGS", "stream_quorum_lost", stream="LOGS"
            ),
            "stream_quorum_lost",
            "LOGS has lost its quorum: too few of its servers can be reached",
            id="a lost quorum",
        ),
        pytest.param(
            _read("$SYS.SERVER.NID.LAMEDUCK", server=_SERVER),
            "lameduck",
            "n1 sends its clients away before it ends",
            id="a lame duck",
        ),
        pytest.param(
            _read("$JS.EVENT.ADVISORY.ODD", "odd_thing", stream="LOGS", why=3),
            "odd_thing",
            '{"stream": "LOGS", "why": 3}',
            id="an unknown one",
        ),
        pytest.param(
            read("$SYS.SERVER.NID.ODD", b"\x1b[2J", _NOW),
            "odd",
            r'{"payload": "\u001b[2J"}',
            id="no JSON",
        ),
        pytest.param(
            read("$SYS.SERVER.NID.SHUTDOWN", b"", _NOW), "shutdown", "a server ends", id="empty"
        ),
        pytest.param(
            _read("$SYS.ACCOUNT.LOGS.CONNECT", "client_connect", client="odd", server=3),
            "client_connect",
            "client ? connected",
            id="of another shape",
        ),
    ],
)
def test_an_event_is_one_readable_line(event: Event, kind: str, text: str) -> None:
    assert (event.kind, event.text) == (kind, text)
    assert event.text.isprintable()
    assert json.loads(json.dumps(event.as_json()))["kind"] == kind


def test_the_time_is_the_server_s_where_it_says_one() -> None:
    assert _read("$SYS.SERVER.NID.SHUTDOWN", server=_SERVER).time == _SERVER["time"]
    assert _read("$SYS.SERVER.NID.SHUTDOWN").time == _NOW
    assert _read("$JS.EVENT.ADVISORY.X", "x", timestamp="2026-01-01T00:00:00Z").time[:4] == "2026"


def test_a_name_that_acts_on_a_terminal_is_shown_as_text() -> None:
    event = _read("$SYS.ACCOUNT.LOGS.CONNECT", "client_connect", client={"name": "\x1b]0;x\x07"})

    assert event.text == r"\x1b]0;x\x07 connected"


def test_what_is_told_by_the_clock_is_noise() -> None:
    assert is_noise(_read("$SYS.SERVER.NID.STATSZ", server=_SERVER))
    assert is_noise(_read("$JS.EVENT.ADVISORY.API", "api_audit"))
    assert not is_noise(_read("$SYS.SERVER.NID.SHUTDOWN"))
