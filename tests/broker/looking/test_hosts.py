import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.client.connection import Connection
from broker.looking import hosts
from broker.looking.hosts import ask, last_seen, rates, subjects
from broker.wire.streams import STREAM
from tests.broker.looking.conftest import Call, Publish, message

pytestmark = pytest.mark.nats

Lines = Callable[[int], bytes]


async def test_hosts_are_what_was_published(
    connection: Connection, publish: Publish, log_lines: Lines
) -> None:
    lines = log_lines(6)
    await publish("web01", lines)
    await publish("web01", b"", more=(("/var/log/auth.log", b"x\n"),))
    await publish("db01.example.net", b"y\n", partition=1, agent="2-0000000b")
    await connection.ask("logs.p0.plain", b"of another client")

    found = (await ask(connection, count_all=True)).hosts

    assert [host.host for host in found] == ["db01.example.net", "plain", "web01"]
    db, plain, web = found
    assert (web.messages, web.lines, web.bytes, web.exact) == (2, 7, len(lines) + 2, True)
    assert (web.files, web.file) == (("/var/log/app.log", "/var/log/auth.log"), "/var/log/auth.log")
    assert (db.partitions, db.agent) == ((1,), "2-0000000b")
    assert (plain.lines, plain.bytes, plain.files) == (1, 17, ())
    assert web.first_seen is not None
    assert 0 < web.first_seen < web.last_seen < db.last_seen < plain.last_seen


async def test_only_the_newest_are_counted_where_there_are_many(
    connection: Connection, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await publish("web01", b"a\nb\n")
    await publish("db01", b"c\n", partition=1)
    monkeypatch.setattr(hosts, "COUNTED", 2)

    db, web = (await ask(connection, count_all=False)).hosts

    assert (web.messages, web.lines, web.bytes, web.exact) == (3, 6, 12, False)
    assert (db.messages, db.lines, db.exact) == (1, 1, True)


async def test_nobody_ships_in_an_empty_stream(connection: Connection) -> None:
    assert (await ask(connection, count_all=False)).hosts == []
    assert await subjects(connection) == {}


class Shifting:
    """A broker whose subjects come and go between two pages, so that a page brings nothing new."""

    async def api(self, name: str, body: object, patience: float) -> dict[str, Any]:
        return {"state": {"subjects": {"logs.p0.a": 1}}, "total": 2}


async def test_a_list_of_subjects_that_changes_meanwhile_has_an_end() -> None:
    assert await subjects(cast("Connection", Shifting())) == {"logs.p0.a": 1}


async def test_silence_is_measured_by_the_clock_of_the_broker(
    connection: Connection, publish: Publish
) -> None:
    await publish("web01", b"a\n")
    await asyncio.sleep(0.2)

    found = await ask(connection, count_all=False)

    assert 0.2 <= found.hosts[0].silent_for(found.now) < 60


async def test_the_command_shows_and_selects_hosts(
    called: Call, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"a\nb\n")
    await publish("db01", b"c\n", partition=1)

    table, chosen, silent = [
        await asyncio.to_thread(called, "hosts", "--server", logs_url, *options)
        for options in (
            (),
            ("--json", "--sort", "lines", "--host", "*0?", "--limit", "1"),
            ("--silent", "1h"),
        )
    ]

    assert [line.split()[0] for line in table.stdout.splitlines()[1:3]] == ["db01", "web01"]
    assert [host["host"] for host in json.loads(chosen.stdout)] == ["web01"]
    assert json.loads(chosen.stdout)[0]["lines"] == 2
    assert "0 of 2 hosts" in silent.stdout


async def test_what_was_deleted_is_not_held(connection: Connection, publish: Publish) -> None:
    await publish("web01", b"a\n")
    await publish("web01", b"b\n")
    await connection.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 1})

    (web,) = (await ask(connection, count_all=True)).hosts

    assert (web.messages, web.lines) == (1, 1)


async def test_messages_that_a_receiver_sets_aside_do_not_change_what_is_shown_of_a_host(
    called: Call, connection: Connection, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"a\nb\n")
    before = json.loads(
        (await asyncio.to_thread(called, "hosts", "--server", logs_url, "--json")).stdout
    )
    _, headers = message(b"c\n", file="/forged", agent="forged")
    for _ in range(3):
        await connection.ask("logs.p0.web01", b"c\n", headers | {"Log-Spans": "9" * 19})
    await connection.ask("logs.p1.web01", b"c\nd\n", headers)
    await connection.ask("logs.p0.nobody", b"c\n", headers | {"Log-Read-At": "now"})

    after = json.loads(
        (await asyncio.to_thread(called, "hosts", "--server", logs_url, "--json")).stdout
    )
    seen = {host.host: host for host in await last_seen(connection)}

    (one,) = before
    nobody, other = after
    assert other["set_aside"] == 4
    ignored = {"set_aside", "silent_seconds", "last_seen", "partitions"}
    assert {key: one[key] for key in one if key not in ignored} == {
        key: other[key] for key in other if key not in ignored
    }
    told = ("host", "set_aside", "lines", "agent", "file")
    assert [nobody[key] for key in told] == ["nobody", 1, 0, "", ""]
    assert seen.keys() == {"nobody", "web01"}


async def test_messages_a_second_are_counted_by_host(
    connection: Connection, publish: Publish
) -> None:
    await publish("silent01", b"a\n")
    counting = asyncio.ensure_future(rates(connection, 2.0))

    while not counting.done():
        await publish("evil", b"a\n")
        await publish("evil", b"a\n", partition=1)
        await publish("web01", b"a\n")

    found = await counting
    assert found.keys() == {"evil", "web01"}
    assert found["evil"] > 1.5 * found["web01"] > 1
