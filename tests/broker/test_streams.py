"""A broker with several streams: setup, commands, and the number that is fixed."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from broker.topology import Topology
from nats_logship.client import bucket
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import CONFIG_BUCKET, STREAMS_KEY, StreamLayout
from tests.broker.conftest import StartBroker, ask, logbroker
from tests.support.processes import installed
from tests.support.terminal import run_on_terminal

pytestmark = pytest.mark.nats

LIMIT = 64 * 1024 * 1024


def fill(url: str, partitions: int = 5, lines: int = 3) -> None:
    which = [(number, line) for number in range(partitions) for line in range(lines)]
    ask(url, *((f"logs.p{n}.web{n}", b"line %d\n" % line) for n, line in which))


async def streams(connection: Connection) -> dict[str, dict[str, Any]]:
    found = (await connection.api("STREAM.LIST"))["streams"]
    return {
        info["config"]["name"]: info
        for info in found
        if not info["config"]["name"].startswith("KV_")
    }


@pytest.fixture
def url(fresh_url: str) -> str:
    options = ("--streams", "3", "--partitions", "5", "--max-bytes", str(LIMIT))
    logbroker("apply", *options, "--server", fresh_url)
    return fresh_url


def test_partitions_and_the_limit_are_spread_over_the_streams(url: str) -> None:
    found = ask(url, streams)

    assert {name: info["config"]["subjects"] for name, info in found.items()} == {
        "LOGS_0": ["logs.p0.>", "logs.p3.>"],
        "LOGS_1": ["logs.p1.>", "logs.p4.>"],
        "LOGS_2": ["logs.p2.>"],
    }
    assert {info["config"]["max_bytes"] for info in found.values()} == {LIMIT // 3}
    assert ask(url, require_layout) == StreamLayout(5, 3)


def test_another_number_of_streams_is_refused_and_no_number_keeps_it(
    start_broker: StartBroker,
) -> None:
    first = start_broker("--streams", "3", "--partitions", "5")
    url = first.ready()["server"]
    fill(url)
    other = logbroker("apply", "--streams", "4", "--server", url)
    none = logbroker("apply", "--server", url, "--dry-run")
    first.stop(20)

    started = start_broker("--streams", "4")
    assert started.wait(60) == 78
    again = start_broker()
    kept = ask(again.ready()["server"], require_layout)

    assert (other.returncode, none.returncode) == (78, 0), other.stderr + none.stderr
    for text in (other.stderr, started.read_log()):
        assert "the number of streams is 3 and not 4" in text
        assert "stop all shippers" in text
    assert kept == StreamLayout(5, 3)


@pytest.mark.parametrize("made", range(4))
def test_an_interrupted_first_start_is_completed_with_the_same_number(
    made: int, fresh_url: str
) -> None:
    configs = {config["name"]: config for config in Topology(stream_count=3).streams()}

    async def begin(connection: Connection) -> None:
        name = f"KV_{CONFIG_BUCKET}"
        await connection.api(f"STREAM.CREATE.{name}", configs[name])
        await bucket.write(connection, CONFIG_BUCKET, STREAMS_KEY, b"3", 0)
        for number in range(made):
            await connection.api(f"STREAM.CREATE.LOGS_{number}", configs[f"LOGS_{number}"])

    ask(fresh_url, begin)

    refused = logbroker("apply", "--streams", "2", "--server", fresh_url)
    done = logbroker("apply", "--server", fresh_url)

    assert (refused.returncode, done.returncode) == (78, 0), refused.stderr + done.stderr
    assert sorted(ask(fresh_url, streams)) == ["LOGS_0", "LOGS_1", "LOGS_2"]
    assert ask(fresh_url, require_layout) == StreamLayout(10, 3)


@pytest.mark.long
def test_lines_are_restored_only_to_a_broker_with_as_many_streams(
    url: str, start_broker: StartBroker, second_url: str, tmp_path: Path
) -> None:
    def call(to: str, *arguments: str | Path) -> "CompletedProcess[str]":
        return logbroker(*arguments, "--server", to)

    fill(url)
    saved = call(url, "backup", tmp_path / "b")
    call(second_url, "apply")
    empty = start_broker("--streams", "3", "--partitions", "5").ready()["server"]

    refused = call(second_url, "restore", tmp_path / "b", "--replace", "--yes")
    back = call(empty, "restore", tmp_path / "b")
    positions = call(second_url, "restore", tmp_path / "b", "--positions")

    assert (saved.returncode, refused.returncode, back.returncode) == (0, 1, 0), back.stderr
    assert positions.returncode == 0, positions.stderr
    assert "streams differs" in refused.stderr
    assert "8 of LOGS_0" not in back.stdout
    assert "6 of LOGS_0, 6 of LOGS_1, 3 of LOGS_2" in back.stdout
    held = {name: info["state"]["messages"] for name, info in ask(empty, streams).items()}
    assert held == {"LOGS_0": 6, "LOGS_1": 6, "LOGS_2": 3}


def test_commands_show_all_streams_and_remove_from_all(url: str) -> None:
    fill(url)

    status = logbroker("status", "--json", "--server", url)
    hosts = logbroker("hosts", "--json", "--server", url)
    last = logbroker("tail", "--lines", "100", "--no-follow", "--server", url)
    one = logbroker("get", "--stream", "LOGS_2", "--server", url)
    unnamed = [logbroker(*words, "--server", url) for words in (("get",), ("rm", "1", "--yes"))]
    named = logbroker("rm", "1", "--stream", "LOGS_1", "--yes", "--server", url)
    some = logbroker("purge", "--host", "web[03]", "--yes", "--server", url)
    rest = logbroker("purge", "--everything", "--yes", "--server", url)

    tail = [installed("logbroker"), "tail", "--no-follow", "--since", "2020-01-01"]
    told = run_on_terminal([*tail, "--server", url])

    assert told == (0, "no line matches since 2020-01-01T00:00:00Z\n")
    done = [status, hosts, last, one, named, some, rest]
    assert [ended.returncode for ended in done] == [0] * 7, [ended.stderr for ended in done]
    assert [one["behind"] for one in json.loads(status.stdout)["partitions"]] == [3] * 5
    assert {one["host"] for one in json.loads(hosts.stdout)} == {f"web{n}" for n in range(5)}
    assert last.stdout.count("line 2") == 5
    assert "line 2" in one.stdout
    assert [ended.returncode for ended in unnamed] == [1, 1]
    assert all("LOGS_0, LOGS_1, LOGS_2" in ended.stderr for ended in unnamed)
    assert "removed message 1 of web1" in named.stdout
    assert "removed 6 messages" in some.stdout
    assert "removed 8 messages" in rest.stdout
