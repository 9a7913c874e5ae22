"""`logbroker backup` and `logbroker restore` as programs: output, questions, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.backup.closing import close_config, mark_config
from nats_logship.client.connection import Connection
from nats_logship.wire.restored import Ancestor
from tests.broker.conftest import Call, StartBroker, ask, logbroker

pytestmark = pytest.mark.nats


def publish(url: str, count: int = 3) -> None:
    ask(url, *(("logs.p0.web01", b"line %d\n" % number) for number in range(count)))


def test_restore_deletes_streams_only_with_replace_and_a_yes(
    call: Call, logs_url: str, tmp_path: Path
) -> None:
    publish(logs_url)
    taken = json.loads(call("backup", tmp_path, "--keep", "1", "--json").stdout)
    publish(logs_url, 2)
    restore, replace = ("restore", tmp_path), ("restore", tmp_path, "--replace")

    refused, unasked, dry = call(*restore), call(*replace), call(*replace, "--dry-run")
    plan = call(*replace, "--dry-run", "--json")
    assert "5 messages" in call("status").stdout
    done = call(*replace, "--yes", "--json")

    assert [one.returncode for one in (refused, unasked, dry, plan, done)] == [1, 2, 0, 0, 0]
    assert all("deletes LOGS: 5 messages" in one.stdout for one in (refused, unasked, dry))
    assert "--replace" in refused.stderr
    assert "--yes" in unasked.stderr
    assert [one.stderr.count("\n") for one in (refused, unasked)] == [1, 1]
    for shown, is_restored in ((json.loads(plan.stdout), False), (json.loads(done.stdout), True)):
        assert shown["deletes"]["LOGS"].startswith("5 messages")
        assert (shown["backup"], shown["restored"]) == (taken["backup"], is_restored)
    assert {one["stream"]: one["state"]["messages"] for one in taken["archives"]}["LOGS"] == 3
    assert "3 messages" in call("status").stdout
    verified = json.loads(call("backup", tmp_path, "--verify", "--json").stdout)
    assert verified == {"backup": taken["backup"], "whole": True}


def test_a_damaged_backup_is_refused_before_anything_is_deleted(
    call: Call, logs_url: str, tmp_path: Path
) -> None:
    publish(logs_url)
    call("backup", tmp_path)
    (archive,) = tmp_path.glob("*/LOGS.nats")
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")

    verified = call("backup", "--verify", tmp_path)
    restored = call("restore", tmp_path, "--replace", "--yes")

    assert (verified.returncode, restored.returncode) == (1, 1)
    assert "SHA-256" in verified.stderr
    assert "SHA-256" in restored.stderr
    assert "3 messages" in call("status").stdout


@pytest.mark.parametrize("deleted", ["LOGS", "KV_LOGS_CONFIG"])
def test_a_broker_that_dies_during_a_restore_starts_again_and_the_same_restore_ends(
    start_broker: StartBroker, tmp_path: Path, deleted: str
) -> None:
    async def die_half_way(connection: Connection) -> None:
        for name, change in (("LOGS", closed), ("KV_LOGS_CONFIG", mark_config)):
            config = (await connection.api(f"STREAM.INFO.{name}"))["config"]
            await connection.api(f"STREAM.UPDATE.{name}", change(config))
        await connection.api(f"STREAM.DELETE.{deleted}")

    def closed(config: dict[str, Any]) -> dict[str, Any]:
        return close_config(config, Ancestor("2026-01-01T00:00:00Z", 4))

    broker = start_broker()
    url = broker.ready()["server"]
    publish(url)
    assert logbroker("backup", tmp_path / "backups", "--server", url).returncode == 0
    ask(url, die_half_way)
    broker.kill()

    url = start_broker().ready()["server"]
    done = logbroker("restore", tmp_path / "backups", "--server", url)

    assert (done.returncode, done.stderr) == (0, "")
    assert "3 messages" in logbroker("status", "--server", url).stdout
