"""An event of a server or of JetStream is one readable line."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from broker.inspect import events
from broker.inspect.events import BrokerEvent, read_event
from nats_logship.wire.delivery import RawMessage

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


async def test_events_that_a_slow_reader_misses_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "_MOST_WAITING", 1)
    monkeypatch.setattr(events, "collect_holders", AsyncMock(return_value={}))

    async def tap(subject: str, take: Callable[[RawMessage], None]) -> None:
        take(RawMessage(subject, "", b"", b"{}"))  # one of each subject, before any is read

    async def guard(awaited: Awaitable[Any], _seconds: float) -> Any:
        return await awaited

    shown = events.listen(AsyncMock(tap=tap, guard=guard))
    assert (await anext(shown)).kind == ">"
    await shown.aclose()

    assert "3 events are not shown: the reader is too slow" in caplog.text
