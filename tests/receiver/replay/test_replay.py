"""A replay of what a real broker holds: its files are what a receiver makes of the same lines."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from nats_logship.app.exits import Exit, OperatorError
from nats_logship.client.ranges import SequenceRange
from nats_logship.wire.message import MAX_LINES_BYTES
from receiver.consume.judging import Piece
from receiver.replay.lines import LineRun, read_lines
from receiver.replay.replay import ReplaySummary, pace, replay
from receiver.settings import ReplaySettings, StreamSettings
from receiver.storage.folders import walk_files
from receiver.storage.layout import DEFAULT
from tests.receiver.partition import Message, Partition, api, lines_of, message, ours
from tests.support import forks
from tests.support.processes import installed

pytestmark = pytest.mark.nats


def replayed(
    partition: Partition, name: str = "again", **options: object
) -> tuple[ReplaySummary, dict[str, bytes]]:
    """Replay into a folder beside the receiver's; return the summary and the files."""
    folder = partition.folder / name
    wanted = {"since": "earliest", "output": folder, "server": (partition.url,), **options}
    summary = replay(ReplaySettings(**wanted))
    return summary, tree(folder)


def tree(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in walk_files(folder)}


def publish_odd_messages(partition: Partition) -> int:
    """Publish repeats, gaps, unfinished lines, messages of other clients, and damaged ones."""
    subject, payload, headers = message("web01", lines_of("new.log", 99, b"no\n"))
    return partition.publish(
        ours("web01", "app.log", 0, b"one\ntwo\n"),
        ours("web02", "app.log", 100, b"other\n"),
        ours("web01", "app.log", 0, b"one\ntwo\n"),
        ours("web01", "app.log", 4, b"two\nthree\n"),
        ours("web01", "app.log", 50, b"after a gap\n"),
        ("logs.p0.web01", b"a stranger's, without an end", None),
        ("logs.p0.web02", b"x", {"Log-Agent": "1-1", "Log-Read-At": "one"}),
        ("logs.p0.web01", b"not zstd", {"Content-Encoding": "zstd"}),
        ours("web01", "other.log", 0, b"another file's\n"),
        ours("web01", "app.log", 50, b"after a\n", end=70, filtered=True),
        message(
            "web01",
            *(lines_of("app.log", 70, b"piece, "), lines_of("other.log", 0, b"another file's\n")),
            *(lines_of("new.log", 7, b"new\n"), lines_of("other.log", 99, b"behind a gap\n")),
        ),
        message("web01", lines_of("app.log", 77, b"rest\n"), lines_of("new.log", 11, b"2\n")),
        (subject, payload + b"more\n", headers),
    )


@pytest.mark.parametrize(
    ("speed", "template"),
    [
        *(("instant", path) for path in (DEFAULT, "{host}/{date}/{file}", "{host}/{file}")),
        ("instant", "{host}/{namespace}/{pod}.log"),
        ("original", DEFAULT),
    ],
)
def test_a_replay_writes_what_the_receiver_wrote_byte_for_byte(
    partition: Partition, speed: str, template: str
) -> None:
    partition = replace(partition, template=template)
    publish_odd_messages(partition)
    partition.publish(ours("web01", "app.log/x", 0, b"a folder now\n"))
    done = partition.receive()

    counts, files = replayed(partition, speed=speed, path_template=template)

    assert files == tree(partition.output)
    assert sum(map(len, files.values())) > 100
    assert counts.refused == done.quarantined
    assert "could not be read as lines, for example sequence 7: " in counts.as_text()
    assert not (partition.folder / "again/.unfinished").exists()


def test_hosts_files_and_ranges_are_chosen(partition: Partition) -> None:
    publish_odd_messages(partition)

    _, of_host = replayed(partition, "host", host=("web02",))
    _, of_file = replayed(partition, "file", file=("other.*",))
    _, of_range = replayed(partition, "range", since="seq:2", until="seq:4")

    assert of_host == {"web02.log": b"other\n"}
    assert of_file == {"web01.log": b"another file's\nbehind a gap\n"}
    assert of_range == {"web02.log": b"other\n", "web01.log": b"one\ntwo\n"}


def test_highly_compressed_lines_are_read_a_part_at_a_time(partition: Partition) -> None:
    zstd = {"Content-Encoding": "zstd"}
    # with a window so small that the ratio is one that receivers take
    small = zstandard.ZstdCompressionParameters(window_log=10, write_content_size=True)
    packer = zstandard.ZstdCompressor(compression_params=small)
    long = packer.compress(b"x" * (MAX_LINES_BYTES - 1) + b"\n")
    too_much = zstandard.compress(bytes(60 * 1024 * 1024))
    sent: list[Message] = [("logs.p0.web01", payload, zstd) for payload in (*[long] * 5, too_much)]
    until = 1 + partition.publish(*sent)

    passed: list[int] = []
    settings = StreamSettings(server=(partition.url,))
    runs = [*read_lines(settings, [SequenceRange("logs.p0.>", 1, until)], passed.append)]
    sizes = [sum(len(piece.payload) for piece in run.pieces) for run in runs]

    assert max(sizes) < 2 * MAX_LINES_BYTES
    assert (sum(sizes), sum(len(run.refused) for run in runs)) == (5 * MAX_LINES_BYTES, 1)
    assert sum(passed) == until - 1


def test_lines_are_written_in_order_and_never_before_they_are_due() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    pieces = [Piece("h", "", n, at * 1_000_000_000, b"x\n") for n, at in enumerate((3, 3, 5, 9))]
    runs = pace([LineRun(pieces[:3]), LineRun(pieces[3:])], lambda: clock[0], sleep)
    passed = [(clock[0], [one.sequence for one in run.pieces]) for run in runs]

    assert [entry for entry in passed if entry[1]] == [(0, [0, 1]), (2, [2]), (6, [3])]


def program(filled: Partition, *options: str) -> "subprocess.CompletedProcess[str]":
    return forks.run("logreceiver", "replay", "--server", filled.url, *options, seconds=300)


@pytest.fixture
def filled(partition: Partition) -> Partition:
    partition.publish(*((f"logs.p{n % 2}.web{n % 4}", b"line %d\n" % n, None) for n in range(40)))
    return partition


def test_an_hour_is_replayed_into_new_files(filled: Partition) -> None:
    output = filled.folder / "again"

    ended = program(filled, "--since", "1h", "--host", "web[01]", "--output", str(output))

    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert "replayed 20 lines" in ended.stderr
    assert sorted(path.name for path in output.iterdir()) == ["web0.log", "web1.log"]
    assert (output / "web1.log").read_bytes() == b"".join(b"line %d\n" % n for n in range(1, 40, 4))
    again = program(filled, "--since", "1h", "--output", str(output))
    assert (again.returncode, again.stdout) == (Exit.CONFIGURATION, "")
    assert "is not empty" in again.stderr
    soon = program(filled, "--since", "soon", "--output", "-")
    assert (soon.returncode, soon.stdout, soon.stderr.count("\n")) == (Exit.USAGE, "", 1)
    assert "2h" in soon.stderr
    ended = program(filled, "--since", "1h", "--until", "2h", "--output", "-")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (Exit.USAGE, "", 1)
    assert "is not after since" in ended.stderr


def test_a_reader_that_closes_the_pipe_ends_a_replay_without_an_error(filled: Partition) -> None:
    words = ["replay", "--server", filled.url, "--since", "seq:3", "--output", "-"]
    command = [installed("logreceiver"), *words]
    reading, writing = os.pipe()
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE) as program:
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as lines:
            first = lines.read(7)
        said = program.communicate(timeout=100)[1]

    assert (first, program.returncode, said) == (b"line 2\n", 0, b"")


@pytest.mark.parametrize("chosen", [(0, 1), (1,)])
def test_partitions_are_one_stream_in_order(chosen: tuple[int, ...], filled: Partition) -> None:
    filled.publish(
        message("web1", lines_of("a", 0, b"piece, "), lines_of("b", 0, b"other\n")),
        message("web2", lines_of("a", 0, b"1\n")),
        message("web1", lines_of("a", 7, b"more, ")),
        message("web1", lines_of("a", 13, b"rest\n")),
    )
    words = [f"--partition={number}" for number in chosen]

    ended = program(filled, "--since", "earliest", "--output", "-", *words)

    lines = "".join(f"line {n}\n" for n in range(40) if n % 2 in chosen)
    torn = "piece, \nother\n1\nmore, rest\n" if 0 in chosen else ""
    assert ended.stdout == lines + torn, ended.stderr


def test_sequences_that_are_no_longer_in_the_stream_are_reported(filled: Partition) -> None:
    filled.ask(lambda connection: connection.api("STREAM.PURGE.LOGS", {"seq": 30}))

    ended = program(filled, "--since", "seq:5", "--output", "-")

    assert (ended.returncode, ended.stdout) == (0, "".join(f"line {n}\n" for n in range(29, 40)))
    assert "sequences 5 to 29: no longer in the stream" in ended.stderr


def test_a_refusal_of_the_broker_is_reported_with_its_remedy(filled: Partition) -> None:
    config = api(filled.url, "STREAM.INFO.LOGS")["config"]
    api(filled.url, "STREAM.UPDATE.LOGS", config | {"allow_direct": False})

    with pytest.raises(OperatorError, match=r"refuses: stream LOGS .* --allow-direct"):
        replayed(filled, "refused")
