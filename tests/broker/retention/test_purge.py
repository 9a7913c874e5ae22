"""`logbroker purge` and `rm`: they show what goes and ask; what was chosen goes, and nothing else."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.connection import Connection
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Messages of two hosts, in turn: sequences 1, 3, 5, 7 of web01 and 2, 4, 6, 8 of db01."""
    partition = Partition(logs_url, tmp_path)
    for number in range(4):
        lines = b"line %d\n" % number
        partition.publish(*(ours(host, "a", number * 7, lines) for host in ("web01", "db01")))
    return partition


def held(partition: Partition) -> list[int]:
    async def ask(connection: Connection) -> list[int]:
        state = (await connection.api("STREAM.INFO.LOGS", {"deleted_details": True}))["state"]
        gone = set(state.get("deleted") or ())
        return [n for n in range(state["first_seq"], state["last_seq"] + 1) if n not in gone]

    return partition.ask(ask)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        pytest.param(["--host", "web01"], [2, 4, 6, 8], id="a host"),
        pytest.param(["--host", "*01", "--partition", "0"], [], id="globs"),
        pytest.param(["--host", "web01", "--before", "seq:4"], [2, 4, 5, 6, 7, 8], id="its oldest"),
        pytest.param(["--before", "seq:4"], [4, 5, 6, 7, 8], id="below a sequence"),
        pytest.param(["--everything"], [], id="everything"),
        pytest.param(["--partition", "1"], list(range(1, 9)), id="a partition without any"),
        pytest.param(["--before", "1h"], list(range(1, 9)), id="before there was any"),
        pytest.param(["--before", "0s"], [], id="until now"),
    ],
)
def test_what_was_chosen_goes(
    logbroker_inside: Call, partition: Partition, options: list[str], left: list[int]
) -> None:
    done = logbroker_inside("purge", "--server", partition.url, *options, "--yes")

    assert done.returncode == 0, done.stderr
    assert held(partition) == left
    assert (f"removed {8 - len(left)} messages" in done.stdout) == (len(left) < 8)


def test_a_purge_shows_what_goes_and_asks_first(
    logbroker_inside: Call, partition: Partition
) -> None:
    purge = ("purge", "--server", partition.url, "--host", "web*")

    aimless, dry, unasked = (
        logbroker_inside(*words) for words in [purge[:3], (*purge, "--dry-run"), purge]
    )
    done = logbroker_inside(*purge, "--yes")
    again = logbroker_inside(*purge)

    assert [one.returncode for one in (aimless, dry, unasked, done, again)] == [2, 0, 2, 0, 0]
    assert "say what is to go" in aimless.stderr
    assert dry.stdout == unasked.stdout
    assert "4 messages" in dry.stdout
    assert "NOT RECEIVED by partition 0;" in dry.stdout
    assert "logs.p0.web01" in dry.stdout
    assert "--yes" in unasked.stderr
    assert again.stdout == "0 messages match\n"


def test_one_message_is_shown_and_goes_for_good(
    logbroker_inside: Call, partition: Partition
) -> None:
    partition.publish(ours("db01", "b", 0, b"secret\x1b[2J\n"))
    rm = ("rm", "--server", partition.url, "--seq", "9")

    unasked, done, gone = (logbroker_inside(*rm, *yes) for yes in ((), ("--yes",), ()))

    assert [one.returncode for one in (unasked, done, gone)] == [2, 0, 1]
    assert "secret\\x1b[2J" in unasked.stdout
    assert "--yes" in unasked.stderr
    assert "removed message 9 of db01" in done.stdout
    assert "message 9" in gone.stderr
