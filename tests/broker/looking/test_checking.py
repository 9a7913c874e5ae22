import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.connection import Connection
from tests.broker.looking.conftest import Call, Publish

pytestmark = pytest.mark.nats


async def test_a_healthy_broker_is_ok_and_its_lag_is_told(
    logbroker: Callable[..., "subprocess.CompletedProcess[str]"],
    called: Call,
    connection: Connection,
    publish: Publish,
    logs_url: str,
) -> None:
    await asyncio.to_thread(called, "apply", "--server", logs_url, "--partitions", "2")
    await publish("web01", b"a\n")

    nagios = await asyncio.to_thread(logbroker, "check", "--server", logs_url)
    lag, room, prometheus = [
        await asyncio.to_thread(called, "check", "--server", logs_url, *options)
        for options in (
            ("lag", "--lag-critical", "1", "--format", "json"),
            ("room",),
            ("--format", "prometheus"),
        )
    ]

    assert (nagios.returncode, nagios.stdout.count("\n")) == (0, 1), nagios.stdout
    assert nagios.stdout.startswith("OK logbroker OK:connection: connected to nats://127.0.0.1")
    assert "lag_messages=1 " in nagios.stdout
    assert lag.returncode == 2
    assert json.loads(lag.stdout)["checks"][0]["critical"][0].startswith("p0: 1 messages wait")
    assert room.returncode == 3
    assert "not a logbroker" in room.stdout
    assert 'logbroker_check_lag_partition_messages{partition="0"} 1' in prometheus.stdout


def test_a_broker_that_is_away_is_critical(called: Call) -> None:
    away, lag = (
        called("check", *named, "--server", "nats://127.0.0.1:1") for named in ([], ["lag"])
    )

    assert (away.returncode, lag.returncode) == (2, 3)
    assert away.stdout.startswith("CRITICAL logbroker Crit:connection: no broker at")
    assert away.stdout.count("\n") == 1


def test_a_server_without_our_stream_says_so(called: Call, fresh_url: str) -> None:
    ended = called("check", "lag", "stream", "--server", fresh_url)

    assert ended.returncode == 2
    assert "Crit:stream: the broker refuses: stream not found" in ended.stdout
    assert "Unknown:lag:" in ended.stdout


def test_a_server_that_takes_its_time_is_not_waited_for(called: Call, logs_url: str) -> None:
    ended = called("check", "--server", logs_url, "--timeout", "0.1", "--rtt-warn", "5s")

    assert ended.stdout.count("\n") == 1  # in time or not


def test_what_cannot_be_used_is_unknown(called: Call, tmp_path: Path, logs_url: str) -> None:
    ended = called("check", "--creds", tmp_path / "none", "--server", logs_url)
    unwritable = called(
        "check", "connection", "--server", logs_url, "--outfile", tmp_path / "no" / "x.prom"
    )

    assert ended.returncode == unwritable.returncode == 3
    assert "check --creds" in ended.stdout
    assert "cannot write" in unwritable.stdout


def test_a_file_is_written_whole(called: Call, tmp_path: Path, logs_url: str) -> None:
    path = tmp_path / "logbroker.prom"

    ended = called(
        *("check", "connection", "--server", logs_url, "--format", "prometheus"),
        *("--outfile", path),
    )

    assert (ended.returncode, ended.stdout) == (0, "")
    assert 'logbroker_check_status_code{check="connection"} 0' in path.read_text()
