"""`logbroker backup` and `logbroker restore` as programs: what they say, what they ask, and how they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import Call, ask

pytestmark = pytest.mark.nats


def publish(url: str, count: int = 3) -> None:
    ask(url, *(("logs.p0.web01", b"line %d\n" % number) for number in range(count)))


def test_what_was_backed_up_comes_back_to_an_empty_broker_without_a_question(
    logbroker_inside: Call, logs_url: str, second_url: str, tmp_path: Path
) -> None:
    publish(logs_url)
    logbroker_inside("apply", "--server", second_url, "--partitions", "3")

    saved = logbroker_inside("backup", tmp_path / "b", "--server", logs_url, "--keep", "1")
    back = logbroker_inside("restore", tmp_path / "b", "--server", second_url)

    assert (saved.returncode, back.returncode) == (0, 0), saved.stderr + back.stderr
    assert "LOGS: 3 messages" in saved.stdout
    assert "go on at their offsets" in back.stdout
    assert "3 messages" in logbroker_inside("status", "--server", second_url).stdout
    assert saved.stderr == (
        f"note: {tmp_path / 'b'} holds all lines in the clear; keep it from others\n"
    )
    assert back.stderr == ""


def test_backup_and_restore_tell_programs_what_they_did_and_would_do(
    logbroker_inside: Call, logs_url: str, tmp_path: Path
) -> None:
    publish(logs_url)

    def told(*words: object) -> dict[str, Any]:
        done = logbroker_inside(*words, "--server", logs_url, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    taken = told("backup", tmp_path)
    plan = told("restore", tmp_path, "--replace", "--dry-run")
    done = told("restore", tmp_path, "--replace", "--yes")

    assert told("backup", tmp_path, "--verify") == {"backup": taken["backup"], "whole": True}
    assert {one["stream"]: one["state"]["messages"] for one in taken["archives"]}["LOGS"] == 3
    assert plan["deletes"]["LOGS"].startswith("3 messages")
    assert (plan["backup"], plan["restored"], done["restored"]) == (taken["backup"], False, True)


def test_what_is_there_is_deleted_only_by_those_who_say_so_twice(
    logbroker_inside: Call, logs_url: str, tmp_path: Path
) -> None:
    publish(logs_url)
    logbroker_inside("backup", tmp_path, "--server", logs_url)
    publish(logs_url, 2)
    restore = ("restore", tmp_path, "--server", logs_url)

    refused, unasked, dry = (
        logbroker_inside(*restore, *more)
        for more in ([], ["--replace"], ["--replace", "--dry-run"])
    )
    assert "5 messages" in logbroker_inside("status", "--server", logs_url).stdout
    done = logbroker_inside(*restore, "--replace", "--yes")

    assert [one.returncode for one in (refused, unasked, dry, done)] == [1, 2, 0, 0]
    assert all("deletes LOGS: 5 messages" in one.stdout for one in (refused, unasked, dry, done))
    assert "--replace" in refused.stderr
    assert "--yes" in unasked.stderr
    assert [one.stderr.count("\n") for one in (refused, unasked)] == [1, 1]
    assert "3 messages" in logbroker_inside("status", "--server", logs_url).stdout


def test_a_damaged_backup_is_refused_before_anything_is_deleted(
    logbroker_inside: Call, logs_url: str, tmp_path: Path
) -> None:
    publish(logs_url)
    logbroker_inside("backup", tmp_path, "--server", logs_url)
    (archive,) = tmp_path.glob("*/LOGS.nats")
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")

    verified = logbroker_inside("backup", "--verify", tmp_path)
    restored = logbroker_inside("restore", tmp_path, "--server", logs_url, "--replace", "--yes")

    assert (verified.returncode, restored.returncode) == (1, 1)
    assert "SHA-256" in verified.stderr
    assert "SHA-256" in restored.stderr
    assert "3 messages" in logbroker_inside("status", "--server", logs_url).stdout
