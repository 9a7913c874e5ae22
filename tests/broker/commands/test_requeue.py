"""`logbroker requeue` publishes each quarantined message once, also if it is killed."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard

from nats_logship.client.connection import Connection
from tests.broker.conftest import Call, ask

pytestmark = pytest.mark.nats

SUBJECT = "logs.p0.web01"
LINES = [b"line %d\n" % number for number in range(300)]


def quarantine(path: Path, *messages: tuple[str, dict[str, str], bytes]) -> Path:
    """Write a file as a receiver does."""
    parts = [
        json.dumps(
            {
                **{"subject": subject, "sequence": number, "stored_at": 1, "reason": "x"},
                **{"headers": headers, "bytes": len(payload)},
            }
        ).encode()
        + b"\n"
        + payload
        for number, (subject, headers, payload) in enumerate(messages, 1)
    ]
    path.write_bytes(b"\n".join(parts))
    return path


def stored(url: str, *work: Any) -> list[bytes]:
    """Return the payloads that the stream holds, after doing something."""

    async def read(connection: Connection) -> list[bytes]:
        state = (await connection.api("STREAM.INFO.LOGS"))["state"]
        numbers = range(max(1, state["first_seq"]), state["last_seq"] + 1)
        calls = (connection.request("$JS.API.DIRECT.GET.LOGS", b'{"seq": %d}' % n) for n in numbers)
        return [(await one).data for one in calls]

    found: list[bytes] = ask(url, *work, read)
    return found


def test_payloads_are_published_without_headers_and_unreadable_ones_named(
    logs_url: str, call: Call, tmp_path: Path
) -> None:
    frame, zstd = zstandard.compress(b"a\nb\n"), {"Content-Encoding": "zstd"}
    file = quarantine(
        tmp_path / "q.msg",
        (SUBJECT, {"Log-Spans": "x", "Log-Agent": "1-1"}, b"plain\n\n"),
        (SUBJECT, zstd, b"not zstd"),
        ("logs.p0", {}, b"nobody's"),
        ("logs.p0.\udcff", {}, b"not UTF-8"),
        (SUBJECT, zstd, frame),
    )

    called = call("requeue", file, "--json")

    assert called.returncode == 0, called.stderr
    assert stored(logs_url) == [b"plain\n\n", frame]
    assert "message 2 of logs.p0.web01 cannot be read" in called.stderr
    assert "message 3 of logs.p0 cannot be read" in called.stderr
    back = {"messages": 2, "lines": 4, "file": f"{file}.requeued"}
    assert json.loads(called.stdout) == back
    assert [path.name for path in tmp_path.iterdir()] == ["q.msg.requeued"]
    again = call("requeue", file)
    assert (again.returncode, again.stderr.count("\n")) == (78, 1)


def interrupted(url: str, folder: Path, last: int) -> Path:
    """Return a quarantine file, with the progress of an interrupted run that began at `last`."""
    info = ask(url, (SUBJECT, b"before\n"), "STREAM.INFO.LOGS")
    progress = {"stream": "LOGS", "last": last, "created": info["created"]}
    (folder / "q.msg.progress").write_text(json.dumps(progress))
    return quarantine(folder / "q.msg", (SUBJECT, {}, b"a\n"))


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "did not arrive"])
def test_an_interrupted_run_is_resumed_after_later_messages(
    logs_url: str, call: Call, tmp_path: Path, arrived: bool
) -> None:
    one, other = interrupted(logs_url, tmp_path, last=1), tmp_path / "other.msg"
    if arrived:  # the same message by another file: as if this run had published it
        other.write_bytes(one.read_bytes())
        assert call("requeue", other).returncode == 0
    stored(logs_url, (SUBJECT, b"meanwhile\n"))

    called = call("requeue", one)

    assert called.returncode == 0, called.stderr
    assert stored(logs_url).count(b"a\n") == 1


def test_a_person_must_decide_if_the_stream_has_lost_messages(
    logs_url: str, call: Call, tmp_path: Path
) -> None:
    file = interrupted(logs_url, tmp_path, last=0)
    stored(logs_url, "STREAM.PURGE.LOGS")

    called = call("requeue", file)

    assert called.returncode == 1
    assert "Search the host's file for their lines" in called.stderr
    assert stored(logs_url) == []


@pytest.mark.long
def test_killed_at_any_moment_it_publishes_each_message_once(logs_url: str, tmp_path: Path) -> None:
    file = quarantine(tmp_path / "q.msg", *((SUBJECT, {}, line) for line in LINES))
    command = [sys.executable, "-m", "broker", "requeue", file, "--server", logs_url]

    kills = 0
    while file.exists():
        before = len(stored(logs_url))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and kills < 8:
            time.sleep(0.01)
            if (tmp_path / "q.msg.progress").exists() and len(
                stored(logs_url)
            ) > before + 10 * kills:
                process.kill()
                kills += 1
        assert process.wait() in {0, -9}

    assert kills > 1
    assert stored(logs_url) == LINES
