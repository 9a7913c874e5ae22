"""`logreceiver replay` as people run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.app.exits import Exit
from tests.receiver.partition import Partition, lines_of, message

PROGRAM = str(Path(sys.executable).with_name("logreceiver"))
pytestmark = pytest.mark.nats


def replay(partition: Partition, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [PROGRAM, "replay", "--server", partition.url, *arguments],
        capture_output=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    partition = Partition(logs_url, tmp_path)
    partition.publish(*((f"logs.p{n % 2}.web{n % 4}", b"line %d\n" % n, None) for n in range(40)))
    return partition


def test_an_hour_is_replayed_into_files_of_its_own(partition: Partition) -> None:
    output = partition.folder / "again"

    ended = replay(partition, "--since", "1h", "--host", "web[01]", "--output", str(output))

    assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr
    assert b"replayed 20 lines" in ended.stderr
    assert sorted(path.name for path in output.iterdir()) == ["web0.log", "web1.log"]
    assert (output / "web1.log").read_bytes() == b"".join(b"line %d\n" % n for n in range(1, 40, 4))
    again = replay(partition, "--since", "1h", "--output", str(output))
    assert (again.returncode, again.stdout) == (Exit.CONFIGURATION, b"")
    assert b"is not empty" in again.stderr


def test_a_reader_who_has_had_enough_ends_a_replay_quietly(partition: Partition) -> None:
    words = [PROGRAM, "replay", "--server", partition.url, "--since", "seq:3", "--output", "-"]
    reading, writing = os.pipe()
    with subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE) as program:
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as lines:
            first = lines.read(7)
        said = program.communicate(timeout=100)[1]

    assert (first, program.returncode, said) == (b"line 2\n", 0, b"")


@pytest.mark.parametrize("chosen", [(0, 1), (1,)])
def test_partitions_come_as_one_stream_in_the_order_of_storage(
    chosen: tuple[int, ...], partition: Partition
) -> None:
    partition.publish(
        message("web1", lines_of("a", 0, b"piece, "), lines_of("b", 0, b"other\n")),
        message("web2", lines_of("a", 0, b"1\n")),
        message("web1", lines_of("a", 7, b"more, ")),
        message("web1", lines_of("a", 13, b"rest\n")),
    )
    words = [f"--partition={number}" for number in chosen]

    ended = replay(partition, "--since", "earliest", "--output", "-", *words)

    lines = b"".join(b"line %d\n" % n for n in range(40) if n % 2 in chosen)
    torn = b"piece, \nother\n1\nmore, rest\n" if 0 in chosen else b""
    assert ended.stdout == lines + torn, ended.stderr


def test_what_the_stream_no_longer_holds_is_said(partition: Partition) -> None:
    partition.ask(lambda connection: connection.api("STREAM.PURGE.LOGS", {"seq": 30}))

    ended = replay(partition, "--since", "seq:5", "--output", "-")

    assert (ended.returncode, ended.stdout) == (
        0,
        b"".join(b"line %d\n" % n for n in range(29, 40)),
    )
    assert b"sequences 5 to 29: no longer in the stream" in ended.stderr


def test_a_time_that_is_none_is_told_in_a_line(partition: Partition) -> None:
    ended = replay(partition, "--since", "soon", "--output", "-")

    said = ended.stderr.decode()
    assert (ended.returncode, ended.stdout, len(said.splitlines())) == (Exit.USAGE, b"", 1), said
    assert "2h" in said
