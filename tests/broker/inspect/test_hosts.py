"""`logbroker hosts`: what is counted of each host, by messages that hosts and others send."""

import asyncio
import json
import time
from typing import Any

import pytest

from broker.client.arrived import Arrived
from broker.client.connection import Connection
from broker.inspect.hosts import Hosts, HostStatus, Order, ask_hosts, rows, sort_hosts
from broker.wire.message import Origin, Section, Span, encode_origin
from broker.wire.streams import STREAM
from tests.broker.inspect.conftest import Call, Publish, message, without_payload

_SECOND = 1_000_000_000
_NOW = 200 * _SECOND


def _message(subject: str, size: int, lines: int, *files: str, **more: str) -> Arrived:
    sections = [Section(file, Span("1", 0, size), size, lines) for file in files or ("/app.log",)]
    headers = encode_origin(Origin("1-a", 1, tuple(sections)))
    return without_payload(subject, headers | more, size * len(sections))


def _only(hosts: Hosts) -> HostStatus:
    (host,) = hosts.status(_NOW, is_counted=True)
    return host


def test_a_host_in_two_partitions_is_one_host_with_the_younger_of_its_last_messages() -> None:
    hosts = Hosts()
    for subject in ("logs.p0.web01", "logs.p3.web01"):
        hosts.hold(subject, 2)
    hosts.last(40 * _SECOND, _message("logs.p0.web01", 1, 1))
    hosts.last(5 * _SECOND, _message("logs.p3.web01", 1, 1, "/old"))

    (web,) = hosts.status(_NOW, is_counted=False)

    assert (web.partitions, web.messages, web.file) == ((0, 3), 4, "/app.log")
    assert (web.last_seen, web.silent_seconds, web.lines) == (40 * _SECOND, 160.0, None)


def test_of_a_host_that_makes_up_files_no_more_than_a_thousand_are_counted() -> None:
    hosts = Hosts()
    for number in range(1500):
        hosts.count(1, _message("logs.p0.web01", 1, 1, f"/{number:04}", f"/x/{number}"))

    web = _only(hosts)

    assert (web.file_count, len(web.files), web.lines) == (1001, 20, 3000)
    assert next(iter(rows([web])))[-1] == "/x/1499, one of more than 1,000"


def test_subjects_of_no_host_are_no_hosts() -> None:
    hosts = Hosts()
    for subject in ("logs.web01", "logs.p0.a/b", "logs.x.web01"):
        hosts.hold(subject, 1)
        hosts.count(1, without_payload(subject, {}, 0))

    assert hosts.status(_NOW, is_counted=True) == []


def test_40_000_hosts_are_counted_and_sorted_in_a_second() -> None:
    messages = [_message(f"logs.p0.web{number}", 100, 2) for number in range(40_000)]
    hosts = Hosts()
    began = time.process_time()

    for one in messages:
        hosts.hold(one.subject, 1)
        hosts.last(1, one)
    found = sort_hosts(hosts.status(_NOW, is_counted=False), Order.SILENT)

    assert len(found) == 40_000
    assert time.process_time() - began < 5  # 0.9 s, and this machine may be busy


@pytest.mark.parametrize(
    "wrong",
    [
        {"Log-Spans": "nine"},
        {"Log-Spans": "[]"},
        {"Log-Agent": ""},
        {"Log-Read-At": ""},
        {"Content-Encoding": "gzip"},
    ],
)
def test_of_a_malformed_message_only_the_time_is_used(wrong: dict[str, Any]) -> None:
    hosts = Hosts()
    hosts.hold("logs.p0.web01", 2)
    hosts.count(1, _message("logs.p0.web01", 100, 2))
    hosts.count(2, _message("logs.p0.web01", 100, 2, "/forged", **({"Log-Agent": "x"} | wrong)))

    web = _only(hosts)

    assert (web.messages, web.lines, web.bytes, web.malformed) == (1, 2, 100, 1)
    assert (web.last_seen, web.agent, web.files) == (2, "1-a", ("/app.log",))


@pytest.mark.nats
async def test_hosts_are_what_was_published(connection: Connection, publish: Publish) -> None:
    await publish("web01", b"one\ntwo\n")
    await publish("web01", b"", more=(("/var/log/auth.log", b"x\n"),))
    await publish("db01.example.net", b"y\n", partition=1, agent="2-0000000b")
    await connection.ask("logs.p0.plain", b"of another client")

    db, plain, web = await ask_hosts(connection)
    brief = await ask_hosts(connection, exact=False)

    assert (web.host, web.messages, web.lines, web.bytes) == ("web01", 2, 3, 10)
    assert (web.files, web.file) == (("/var/log/app.log", "/var/log/auth.log"), "/var/log/auth.log")
    assert (db.partitions, db.agent) == ((1,), "2-0000000b")
    assert (plain.lines, plain.bytes, plain.files) == (1, 17, ())
    assert 0 < (web.first_seen or 0) < web.last_seen < db.last_seen < plain.last_seen
    assert 0 <= web.silent_seconds < 60
    assert [(one.host, one.messages, one.file, one.lines) for one in brief] == [
        (one.host, one.messages, one.file, None) for one in (db, plain, web)
    ]


@pytest.mark.nats
async def test_what_was_deleted_is_not_counted(connection: Connection, publish: Publish) -> None:
    assert await ask_hosts(connection) == []
    await publish("web01", b"a\n")
    await publish("web01", b"b\n")
    await connection.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 1})

    (web,) = await ask_hosts(connection)

    assert (web.messages, web.lines) == (1, 1)


@pytest.mark.nats
async def test_the_command_shows_and_selects_hosts(
    called: Call, connection: Connection, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"a\nb\n")
    await publish("db01", b"c\n", partition=1)
    _, headers = message(b"c\n")
    await connection.ask("logs.p1.nobody", b"c\n", headers | {"Log-Read-At": "now"})

    table, chosen, silent = [
        await asyncio.to_thread(called, "hosts", "--server", logs_url, *options)
        for options in (
            (),
            ("--json", "--sort", "lines", "--host", "*0?", "--limit", "1"),
            ("--silent", "1h"),
        )
    ]

    assert [line.split()[0] for line in table.stdout.splitlines()[1:4]] == [
        *("db01", "nobody", "web01"),
    ]
    (web,) = json.loads(chosen.stdout)
    assert (web["host"], web["lines"]) == ("web01", 2)
    assert "0 of 3 hosts" in silent.stdout
