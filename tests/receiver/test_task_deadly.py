"""A message that kills the worker that looks at it is found and set aside; a worker that is killed otherwise loses nothing."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from receiver.consume.attempts import DEADLY, Attempts
from tests.receiver.partition import LIMIT, Partition, ours

pytestmark = pytest.mark.nats

_RUN = """
import json, os, signal, sys
from pathlib import Path
from receiver.consume import task
from receiver.consume.assignment import Assignment, Destination, Stay
from receiver.consume import judging
from receiver.storage import files
words = json.loads(sys.argv[1])
left = [words["most"]]

def decode(headers, payload, unfolder=None, real=judging.decode_payload):
    left[0] -= 1
    if (b"deadly" in payload and not words["late"]) or left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(headers, payload, unfolder)

def sync(output, real=files.Output.sync):
    found = [path.read_bytes() for path in Path(words["output"]).glob("*.log")]
    if words["late"] and any(b"deadly" in data for data in found):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(output)

judging.decode_payload = decode
files.Output.sync = sync
report = task.run(
    Assignment(0, words["first"], 1, words["limit"], stay=Stay(20.0, 0.2)),
    Destination(Path(words["output"]), Path(words["state"]), 0, (words["url"],)),
)
print(report.done.quarantined, report.ended)
"""


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def deaths_until(
    partition: Partition, until: int, most: int = 1000, *, is_late: bool = False
) -> int:
    """Run workers, none of which survives more than `most` messages, until all before `until` is committed.

    Return how many were killed.
    """
    killed = 0
    while (first := partition.offset().next) < until:
        words = {
            "first": first,
            "limit": LIMIT,
            "most": most,
            "late": is_late,
            "output": str(partition.output),
            "state": str(partition.state),
            "url": partition.url,
        }
        run = [sys.executable, "-c", _RUN, json.dumps(words)]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in {0, -9}, done.stderr
        killed += done.returncode == -9
        assert killed < 40, "it goes on for ever"
    return killed


@pytest.mark.parametrize("is_late", [False, True], ids=["when read", "when synced"])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_message_that_kills_is_set_aside_unread_and_all_others_received(
    partition: Partition, count: int, *, is_late: bool
) -> None:
    numbers = [n for n in range(count) if n != count // 2]
    for number in range(count):
        line = b"deadly\n" if number == count // 2 else b"%d\n" % number
        last = partition.lines("web01", line)

    killed = deaths_until(partition, last + 1, is_late=is_late)

    assert partition.read("web01") == b"".join(b"%d\n" % number for number in numbers)
    [(about, payload)] = partition.set_aside()
    assert (about["sequence"], payload) == (count // 2 + 1, b"deadly\n")
    assert "workers died over it" in about["reason"]
    assert DEADLY <= killed <= 4 * DEADLY


def test_two_messages_that_kill_are_both_found(partition: Partition) -> None:
    last = partition.lines("web01", b"1\n", b"deadly\n", b"2\n", b"deadly too\n", b"3\n")

    deaths_until(partition, last + 1)

    assert partition.read("web01") == b"1\n2\n3\n"
    assert [payload for _, payload in partition.set_aside()] == [b"deadly\n", b"deadly too\n"]


def test_workers_that_are_killed_at_innocent_messages_cost_no_line(partition: Partition) -> None:
    last = partition.publish(*(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(50)))
    for _ in range(DEADLY + 1):
        assert partition.run_apart(1, fault="appended").returncode == -9

    assert deaths_until(partition, last + 1) == 0

    assert partition.read("web01") == b"".join(b"%03d\n" % n for n in range(50))
    assert partition.set_aside() == []


def test_a_message_that_kills_only_behind_others_is_received(partition: Partition) -> None:
    last = partition.publish(*(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(50)))

    deaths_until(partition, last + 1, most=20)

    assert partition.read("web01") == b"".join(b"%03d\n" % n for n in range(50))
    assert partition.set_aside() == []


def test_what_is_reported_is_no_death_however_often(partition: Partition) -> None:
    last = partition.lines("web01", b"1\n")
    partition.output.mkdir()
    (partition.output / "web01.log").mkdir()
    for _ in range(DEADLY + 1):
        partition.run()
    (partition.output / "web01.log").rmdir()

    assert deaths_until(partition, last + 1) == 0

    assert partition.read("web01") == b"1\n"
    assert partition.set_aside() == []


def died(note: Path, stream: str = "one", epoch: int = 3, first: int = 5) -> int:
    """Note what a worker notes that dies over a batch; return how many messages the batch may have."""
    with closing(Attempts(note, stream, epoch)) as attempts:
        return attempts.begin(first)


def test_a_message_is_tried_alone_as_often_before_it_is_set_aside(tmp_path: Path) -> None:
    most = [died(tmp_path / "note") for _ in range(2 * DEADLY + 2)]

    assert min(most[:DEADLY]) > 1_000_000
    assert most[DEADLY:] == [1] * DEADLY + [0, 0]


@pytest.mark.parametrize("other", [("two", 3, 5), ("one", 4, 5), ("one", 3, 6)])
def test_a_note_of_another_stream_claim_or_sequence_says_nothing(
    tmp_path: Path, other: tuple[str, int, int]
) -> None:
    for _ in range(2 * DEADLY):
        died(tmp_path / "note")

    assert [died(tmp_path / "note", *other) for _ in range(DEADLY + 1)][-1] == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"stream": 1}', b"\0" * 512])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "note").write_bytes(data)

    assert [died(tmp_path / "note") for _ in range(2 * DEADLY + 1)][DEADLY:] == [1] * DEADLY + [0]
