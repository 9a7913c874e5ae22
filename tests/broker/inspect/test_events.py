"""An event of a server or of JetStream is one readable line."""

import json
from typing import Any

import pytest

from broker.inspect.events import BrokerEvent, read_event

KNOWN = {"UKEY": "host web01"}
_CLIENT = {"id": 7, "acc": "LOGS", "name": "logshipper web01", "host": "10.0.0.7"}


def _read(subject: str, kind: str = "", **data: Any) -> BrokerEvent:
    known = {"type": f"io.nats.server.advisory.v1.{kind}"} if kind else {}
    payload = json.dumps({**known, **data}).encode()
    return read_event(subject, payload, "2026-11-21T16:00:00Z", KNOWN)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            _read("$SYS.A.DISCONNECT", "client_disconnect", client=_CLIENT, sent={"msgs": 1}),
            *("client_disconnect", "logshipper web01 LOGS 10.0.0.7, sent=msgs:1"),
        ),
        (_read("$SYS.A", "x", client={"name": "a", "user": "UKEY"}), "x", "a host web01"),
        (_read("$SYS.A", "x", client={"name": "a", "user": "UOTHER"}), "x", "a UOTHER"),
        (
            _read("$SYS.SERVER.N.CLIENT.AUTH.ERR", "x", client={"user": "UKEY"}),
            *("auth_error", "by its key host web01"),
        ),
        (_read("$SYS.SERVER.N.LAMEDUCK", server={"name": "n1"}), "lameduck", "n1"),
        (read_event("$SYS.SERVER.NID.ODD", b"\x1b[2J", ""), "odd", r"payload=\x1b[2J"),
        (_read("$SYS.ACCOUNT.LOGS.CONNECT", "client_connect", client="o"), "client_connect", ""),
        (_read("$SYS.A", "x", client={"name": "\x1b]0;x\x07"}), "x", r"\x1b]0;x\x07"),
    ],
)
def test_an_event_is_one_readable_line(event: BrokerEvent, kind: str, text: str) -> None:
    assert (event.kind, event.text) == (kind, text)
    assert event.text.isprintable()
