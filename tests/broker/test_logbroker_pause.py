"""`logbroker pause` and `resume`: what they write, print and refuse."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.broker.conftest import Call, ask

pytestmark = pytest.mark.nats


def listed(call: Call, *command: str) -> list[dict[str, Any]]:
    done = call(*command, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_pause_replaces_that_of_the_same_hosts_and_ends_by_name(call: Call) -> None:
    (everything,) = listed(call, "pause", "--reason", "disk")
    assert (everything["hosts"], everything["until"], everything["reason"]) == ("*", None, "disk")
    assert "@" in everything["by"]

    before = time.time_ns() / 1e9
    pauses = listed(call, "pause", "web*", "db01", "--for", "1h30m")
    assert [one["hosts"] for one in pauses] == ["*", "web*", "db01"]
    until = datetime.fromisoformat(pauses[1]["until"])
    assert 5400 <= until.timestamp() - before < 5430
    assert until.tzinfo == UTC

    pauses = listed(call, "pause", "*")
    assert [one["hosts"] for one in pauses] == ["web*", "db01", "*"]
    assert [one["hosts"] for one in listed(call, "resume", "db01")] == ["web*", "*"]
    assert listed(call, "resume") == listed(call, "resume", "web*") == []
    assert "no pause is of web*; none was ended" in call("resume", "web*").stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("web 01",), "hosts 'web 01': "),
        (("--for", "soon"), "is not a duration"),
        (("--for", "9999999d"), "later than a date can be"),
        (("--for", "99999999999d"), "is too long"),
        (("--reason", 501 * "x"), "at most 500 characters"),
    ],
    ids=str,
)
def test_a_bad_pause_is_a_usage_error(call: Call, arguments: tuple[str, ...], text: str) -> None:
    done = call("pause", *arguments)

    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreadable_entry_pauses_nobody_until_a_resume_replaces_it(
    call: Call, logs_url: str
) -> None:
    ask(logs_url, ("$KV.LOGS_CONFIG.pause", b"not a list"))

    paused, status = call("pause"), call("status")

    assert paused.returncode == 1
    assert "cannot be read" in paused.stderr
    assert "`logbroker resume`" in paused.stderr
    assert "the pauses cannot be read" in status.stderr
    assert status.returncode == 0
    assert listed(call, "resume") == []
