"""A unit of a replay on a real broker: its files are what a receiver makes of the same lines."""

import gzip
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import zstandard

from broker.app.selection import Selection
from broker.client.access import Access
from broker.wire.message import MAX_LINES_BYTES
from receiver.consume import task
from receiver.replay.files import HostFiles, Order, Written, write
from receiver.replay.folder import finish, prepare, publish
from receiver.replay.reading import Counts, Reader
from receiver.replay.stream import Sink, Standard, play
from receiver.replay.survey import Span
from receiver.replay.tasks import Unit, reached
from receiver.storage.folders import walk
from receiver.storage.layout import DEFAULT
from tests.receiver.partition import Partition, lines_of, message, ours

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path)


def order(
    partition: Partition,
    hosts: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    size: int = 0,
    template: str = DEFAULT,
) -> Order:
    stage = prepare(partition.folder / "again", template)
    reader = Reader((partition.url,), Access(), Selection(hosts, files))
    return Order(stage, reader, size, timedelta(), "UTC", "gzip", template)


def written(unit: Unit, order: Order) -> tuple[Written, dict[str, bytes]]:
    outcome = write(unit, order)
    files = {path.name: path.read_bytes() for path in outcome.folder.iterdir() if path.is_file()}
    return outcome, files


def set_aside(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / ".quarantine").iterdir())]


def publish_odd_messages(partition: Partition) -> int:
    """Publish all that a receiver has to judge: repeats, a trimmed one, gaps, torn lines, strangers, damage."""
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


def test_a_replay_makes_what_the_receiver_made_byte_for_byte(partition: Partition) -> None:
    until = publish_odd_messages(partition) + 1
    partition.claim()
    done = partition.receive()

    outcome, files = written(Unit(0, 1, until), order(partition))

    received = {name: data for name, data in partition.files().items() if name.endswith(".log")}
    assert files == received
    assert len(files["web01.log"]) > 50
    assert (outcome.counts.refused, outcome.counts.findings) == (
        done.quarantined,
        len(done.findings),
    )
    assert set_aside(outcome.folder) == set_aside(partition.output)


TEMPLATES = ["{host}/{file}", "{date}/{host}.log", "{host}/{date}/{file}", "{file}/{host}.log"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_with_a_template_it_makes_the_folders_that_the_receiver_makes(
    partition: Partition, template: str
) -> None:
    until = publish_odd_messages(partition) + 1
    until += partition.publish(ours("web01", "app.log/x", 0, b"a folder now\n")) - until + 1
    partition.claim()
    task.run(partition.assignment(), replace(partition.destination, path_template=template))
    again = order(partition, template=template)

    outcome = write(Unit(0, 1, until), again)
    publish(partition.folder / "again", [(0, outcome.folder)], template)
    finish(partition.folder / "again", {})

    assert tree(partition.folder / "again") == tree(partition.output)
    assert len(tree(partition.output)) > 1


def tree(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in walk(folder)}


def test_it_moves_no_offset_and_makes_no_consumer(partition: Partition) -> None:
    until = partition.lines("web01", b"one\n") + 1

    written(Unit(0, 1, until), order(partition))

    async def consumers(connection):  # type: ignore[no-untyped-def]
        return await connection.api("CONSUMER.NAMES.LOGS"), await connection.api(
            "STREAM.INFO.KV_LOGS_OFFSETS"
        )

    names, offsets = partition.ask(consumers)
    assert (names["consumers"], offsets["state"]["messages"]) == ([], 0)


def test_hosts_files_and_ranges_are_chosen(partition: Partition) -> None:
    until = publish_odd_messages(partition) + 1

    _, of_host = written(Unit(0, 1, until), order(partition, hosts=("web02",)))
    (partition.folder / "again").rename(partition.folder / "first")
    _, of_file = written(Unit(0, 1, until), order(partition, files=("other.*",)))
    (partition.folder / "again").rename(partition.folder / "second")
    _, of_range = written(Unit(0, 2, 4), order(partition))

    assert of_host == {"web02.log": b"other\n"}
    assert of_file == {"web01.log": b"another file's\nbehind a gap\n"}
    assert of_range == {"web02.log": b"other\n", "web01.log": b"one\ntwo\n"}


def test_of_a_message_only_the_sections_of_chosen_files_are_taken_and_judged(
    partition: Partition,
) -> None:
    parts = [lines_of(file, 0, b"%b 1\n" % file.encode()) for file in ("a", "b", "c")]
    gaps = [lines_of(file, 50, b"%b 2\n" % file.encode()) for file in ("a", "b", "c")]
    until = partition.publish(message("web01", *parts), message("web01", *gaps)) + 1

    outcome, files = written(Unit(0, 1, until), order(partition, files=("b",)))
    path = partition.folder / "stream"
    with path.open("wb") as file:
        selection = Selection(files=("b",))
        counts = played(Standard(file.fileno(), prefixed=False), partition, until, selection)

    assert files == {"web01.log": b"b 1\nb 2\n"}
    assert path.read_bytes() == b"b 1\nb 2\n"
    assert (outcome.counts.findings, counts.findings) == (1, 1)


def test_lines_on_standard_output_stand_as_in_a_file(partition: Partition) -> None:
    until = 1 + partition.publish(
        message("web01", lines_of("a", 0, b"piece, "), lines_of("b", 0, b"other\n")),
        message("web02", lines_of("a", 0, b"1\n")),
        message("web01", lines_of("a", 7, b"more, ")),
        message("web01", lines_of("a", 13, b"rest\n")),
    )
    path = partition.folder / "stream"

    with path.open("wb") as file:
        played(Standard(file.fileno(), prefixed=False), partition, until)

    assert path.read_bytes() == b"piece, \nother\n1\nmore, rest\n"


def test_rotation_and_compression_are_there_when_wanted(partition: Partition) -> None:
    until = partition.lines("web01", *(b"line %d\n" % n for n in range(9))) + 1

    _, files = written(Unit(0, 1, until), order(partition, size=21))

    assert sorted(files) == ["web01.log", "web01.log.000001.gz", "web01.log.000002.gz"]
    assert gzip.decompress(files["web01.log.000001.gz"]) == b"line 0\nline 1\nline 2\n"


def test_an_attempt_that_died_disturbs_no_other(partition: Partition) -> None:
    until = partition.lines("web01", b"one\n", b"two\n") + 1
    wanted = order(partition)
    dead = wanted.stage / "p0-0.dead"
    dead.mkdir()
    (dead / "web01.log").write_bytes(b"on")

    _, files = written(Unit(0, 1, until), wanted)

    assert files == {"web01.log": b"one\ntwo\n"}
    assert reached(wanted.stage, [Unit(0, 1, until)]) == 1


def played(
    sink: Sink,
    partition: Partition,
    until: int,
    selection: Selection = Selection(),  # noqa: B008 - a frozen value
    partitions: tuple[int, ...] = (0, 1),
) -> Counts:
    reader = Reader((partition.url,), Access(), selection)
    return play(reader, Span(partitions, 1, until, 1), 0, sink)


@pytest.mark.parametrize("partitions", [(0, 1), (1,), (1, 5)])
def test_partitions_come_as_one_stream_in_the_order_of_storage(
    partitions: tuple[int, ...], partition: Partition
) -> None:
    messages = [(f"logs.p{n % 2}.web{n % 3}", b"line %d\n" % n, None) for n in range(20)]
    until = partition.publish(*messages) + 1
    path = partition.folder / "stream"

    with path.open("wb") as file:
        sink = Standard(file.fileno(), prefixed=False)
        counts = played(sink, partition, until, partitions=partitions)

    expected = [payload for n, (_, payload, _) in enumerate(messages) if n % 2 in partitions]
    assert path.read_bytes() == b"".join(expected)
    assert (counts.lines, counts.size) == (len(expected), path.stat().st_size)


def test_lines_that_a_few_bytes_decompress_to_are_read_a_part_at_a_time(
    partition: Partition,
) -> None:
    zstd = {"Content-Encoding": "zstd"}
    long = zstandard.compress(b"x" * (MAX_LINES_BYTES - 1) + b"\n")
    too_much = zstandard.compress(bytes(60 * 1024 * 1024))
    until = 1 + partition.publish(
        *[("logs.p0.web01", long, zstd)] * 5, ("logs.p0.web01", too_much, zstd)
    )

    runs = Reader((partition.url,), Access(), Selection()).unit(Unit(0, 1, until))
    counts = [run.counts for run in runs]

    assert max(count.size for count in counts) < 2 * MAX_LINES_BYTES
    assert sum(counts, Counts()) == Counts(5, 5 * MAX_LINES_BYTES, refused=1)


def test_files_at_a_pace_are_the_same_files(partition: Partition) -> None:
    until = publish_odd_messages(partition) + 1
    partition.claim()
    partition.receive()
    folder = partition.folder / "paced"
    folder.mkdir()

    with HostFiles(order(partition), folder) as files:
        counts = played(files, partition, until)
        files.finish()

    received = {name: data for name, data in partition.files().items() if name.endswith(".log")}
    assert {path.name: path.read_bytes() for path in folder.glob("*.log")} == received
    assert (set_aside(folder), counts.refused > 0) == (set_aside(partition.output), True)


def test_every_line_says_its_host_and_file_when_asked(partition: Partition) -> None:
    until = (
        partition.publish(
            ours("web01", "a\x1b.log", 0, b"one\n\ntwo\n"), ("logs.p0.web02", b"plain", None)
        )
        + 1
    )
    path = partition.folder / "stream"

    with path.open("wb") as file:
        played(Standard(file.fileno(), prefixed=True), partition, until)

    assert path.read_bytes() == (
        b"web01:/var/log/a\\x1b.log: one\nweb01:/var/log/a\\x1b.log: \n"
        b"web01:/var/log/a\\x1b.log: two\nweb02: plain\n"
    )
