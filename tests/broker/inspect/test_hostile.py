"""Data that any client can write ends no command, and is escaped for a terminal."""

import asyncio
import json
from pathlib import Path

import pytest

from broker.report import REPORT_SUBJECT
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from tests.broker.conftest import Call, ask, logbroker
from tests.broker.inspect.conftest import message
from tests.partitions import add_subjects
from tests.support.hostile import ACTIVE, GARBAGE, GOOD, ODD, acts_on_a_terminal

pytestmark = pytest.mark.nats


@pytest.fixture
def provisioned(call: Call, logs_url: str) -> str:
    assert call("apply", "--partitions", str(len(GARBAGE) + 1)).returncode == 0
    return logs_url


def test_an_unreadable_offset_is_shown_as_such_and_others_as_usual(
    call: Call, provisioned: str
) -> None:
    good, values = len(GARBAGE), [*GARBAGE.values(), GOOD.encode()]
    ask(provisioned, *((f"$KV.LOGS_OFFSETS.p{n}", value) for n, value in enumerate(values)))

    table, listed, checked = call("status"), call("status", "--json"), call("check", "receivers")
    top = call("top", "--count", "1", "--interval", "200ms")

    assert [one.returncode for one in (table, listed, checked, top)] == [0, 0, 2, 0]
    partitions = json.loads(listed.stdout)["partitions"]
    assert [bool(one["error"]) for one in partitions] == [True] * good + [False]
    assert {(one["owner"], one["offset"]) for one in partitions[:good]} == {(None, None)}
    assert (partitions[good]["owner"], partitions[good]["offset"]) == ("central:1", 2)
    assert "CRITICAL: p0: its offset cannot be read" in table.stdout
    assert "p0: its offset cannot be read" in checked.stdout
    for shown in (table, top):
        assert shown.stdout.count("UNREADABLE") == good
        assert "central:1" in shown.stdout
    for ended in (table, checked, top):
        assert not acts_on_a_terminal(ended.stdout + ended.stderr)


def test_commands_escape_what_clients_wrote(call: Call, provisioned: str, tmp_path: Path) -> None:
    _, headers = message(b"a\n", file=f"/var/{ACTIVE}")

    async def write(connection: Connection) -> None:
        await connection.ask("$KV.LOGS_OFFSETS.p0", ODD)
        await connection.ask("logs.p0.web01", b"a\n", headers | {"Nats-Time-Stamp": ACTIVE})
        await connection.ask("logs.p0.web01", b"a\n", headers | {"Log-Agent": "a\x9b"})
        await connection.ask("logs.p0.web01", b"a\n", headers | {"Log-Spans": f'[{{"{ACTIVE}'})
        await connection.ask("logs.p1.web02", b"a\n", {"Nats-Time-Stamp": "never"})
        await add_subjects(connection, "logs.q0.>")
        await connection.ask("logs.q0.\x1b[2J\x9b", b"\x1b[2J\n")
        config = (await connection.api("STREAM.INFO.KV_LOGS_CONFIG"))["config"]
        await connection.api("STREAM.UPDATE.KV_LOGS_CONFIG", config | {"description": ACTIVE})

    ask(provisioned, write)

    for command in (
        ("status",),
        ("check",),
        ("check", "--json"),
        ("top", "--count", "1", "--interval", "200ms"),
        ("hosts",),
        ("get",),
        ("get", "1"),
        ("get", "2"),
        ("get", "3"),
        ("tail", "--since", "1", "--no-follow"),
        ("tail", "--since", "1", "--no-follow", "--json"),
        ("export", tmp_path),
        ("apply", "--dry-run"),
        ("purge", "--everything", "--dry-run"),
        ("rm", "3", "--dry-run"),
    ):
        ended = call(*command)
        assert ended.returncode == 0 or command[0] == "check", ended
        assert not acts_on_a_terminal(ended.stdout + ended.stderr), ended


REPORTS = (
    b"[" * 100_000,
    b'{"name": "n1", "retention": {"LOGS": {"purged_messages": "x", "state": [1]}, "X": 1}}',
    b'{"name": "n1", "retention": {"LOGS": {"state": "ok", "needed_by": 7}}}',
    b'{"name": ["n1"], "free": 1e999, "reserve": 1, "certificates": [{"not_after": "never"}]}',
    b'{"name": "n1\\u001b[2J", "frozen": "\\u009b2J", "credentials": {"a": "\\u001b"}}',
    b'{"name": "n1", "parts": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"name": "n1", "free": 1' + b"0" * 4000 + b"}",
)


async def test_a_malformed_report_ends_no_command(connection: Connection, logs_url: str) -> None:
    async def reply(message: RawMessage) -> None:
        for answer in REPORTS:
            await connection.publish(message.reply, answer)

    await connection.subscribe(REPORT_SUBJECT, reply)
    await connection.api("INFO")  # the subscription has reached the server

    ended = [
        await asyncio.to_thread(logbroker, *command, "--server", logs_url)
        for command in (("status", "--json"), ("check", "space", "certificates"))
    ]

    assert ended[0].returncode == 0
    assert not any(acts_on_a_terminal(one.stdout) for one in ended)
