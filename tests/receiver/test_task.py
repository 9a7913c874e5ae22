"""What a task answers, on real files and a real broker: done, blocked with a text, or superseded."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from receiver.lock import partition_lock
from receiver.outcome import Blocked, Cause, Done, Superseded
from receiver.spans import Kind
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def blocked(outcome: object, cause: Cause, *words: str) -> None:
    assert isinstance(outcome, Blocked), outcome
    assert outcome.cause is cause
    assert "\n" not in outcome.detail
    for word in words:
        assert word in outcome.detail


def test_lines_of_every_host_are_written_whole_and_in_order(partition: Partition) -> None:
    partition.lines("web01", b"one\ntwo\n", b"three")
    partition.publish(ours("db.example.net", "a", 0, b"first\n"), ours("web01", "a", 7, b"four\n"))

    done = partition.run()

    assert isinstance(done, Done)
    assert (done.until, done.messages, done.lines) == (5, 4, 5)
    assert partition.files() == {
        "web01.log": b"one\ntwo\nthree\nfour\n",
        "db.example.net.log": b"first\n",
    }


def test_an_empty_range_is_done_at_once_and_touches_nothing(partition: Partition) -> None:
    done = partition.run()

    assert done == Done(0, 1, 1)
    assert partition.files() == {}


def test_a_range_that_retention_has_emptied_is_passed_over(partition: Partition) -> None:
    last = partition.lines("web01", *(b"%d" % n for n in range(5)))
    partition.ask(lambda c: c.api("STREAM.PURGE.LOGS"))

    assert partition.run() == Done(0, 1, 1)
    partition.lines("web01", b"after")

    done = partition.run()
    assert isinstance(done, Done)
    assert done.until == last + 2
    assert partition.read("web01") == b"after\n"


def test_an_older_epoch_is_superseded_and_touches_nothing(partition: Partition) -> None:
    partition.lines("web01", b"one")
    partition.move(1, 2, "other:7")

    outcome = partition.run(1, 1)

    assert isinstance(outcome, Superseded)
    assert "other:7" in outcome.detail
    assert partition.files() == {}


def test_a_partition_whose_offset_was_deleted_is_superseded(partition: Partition) -> None:
    async def delete(connection: object) -> None:
        await connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})  # type: ignore[attr-defined]

    partition.ask(delete)

    assert isinstance(partition.run(), Superseded)


def test_an_offset_of_an_earlier_epoch_blocks_as_it_may_only_be_a_late_replica(
    partition: Partition,
) -> None:
    partition.lines("web01", b"one")

    blocked(partition.run(1, 2), Cause.STATE, "epoch 1", "replica")
    assert not partition.output.joinpath("web01.log").exists()


def test_more_hosts_than_descriptors_are_written_whole(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.files._MOST_OPEN", 3)
    small = replace(partition, rotate_size=30)
    hosts = [f"host{n}" for n in range(10)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        for host in hosts:
            small.lines(host, b"%d of " % number + host.encode() + b" " * 5)

    small.receive()

    for host in hosts:
        expected = b"".join(b"%d of %s     \n" % (n, host.encode()) for n in range(5))
        assert small.read(host) == expected
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 4  # the broker's connection


def test_a_journal_of_a_later_epoch_supersedes_even_when_kv_was_restored(
    partition: Partition,
) -> None:
    partition.lines("web01", b"one")
    partition.move(1, 5)
    partition.run(1, 5)
    before = partition.files()
    partition.move(1, 3)

    assert isinstance(partition.run(1, 3), Superseded)
    assert partition.files() == before


def test_an_offset_moved_by_hand_blocks(partition: Partition) -> None:
    partition.lines("web01", b"one", b"two")
    partition.move(2)

    blocked(partition.run(1), Cause.STATE, "the offset is 2, not 1")
    assert partition.files() == {}


def test_an_offset_that_does_not_belong_to_the_files_blocks_and_says_what_to_do(
    partition: Partition,
) -> None:
    partition.lines("web01", b"one", b"two", b"three")
    partition.run(1)
    before = partition.files()
    partition.move(3)

    blocked(partition.run(3), Cause.STATE, "do not belong together", "--output")
    assert partition.files() == before


def test_a_damaged_journal_blocks(partition: Partition) -> None:
    partition.lines("web01", b"one")
    partition.run(1)
    journal = partition.state / "p0.journal"
    journal.write_bytes(journal.read_bytes() + b"what is this\n")

    blocked(partition.run(1), Cause.STATE, "unreadable")


@pytest.mark.parametrize(
    "entry", [b"", b"{}", b'{"version":1}', b'{"version":1,"next":"x"}', b"[1]", b'{"version":9}']
)
def test_an_unreadable_offset_blocks(partition: Partition, entry: bytes) -> None:
    async def damage(connection: object) -> None:
        await connection.ask("$KV.LOGS_OFFSETS.p0", entry)  # type: ignore[attr-defined]

    partition.ask(damage)

    blocked(partition.run(), Cause.STATE)


def test_spans_that_cannot_be_read_block(partition: Partition) -> None:
    partition.publish(ours("web01", "a", 0, b"one\n"))
    done = partition.receive()
    spans = partition.state / "p0.spans"
    spans.write_bytes(spans.read_bytes() + b"\0\0\0\n")

    blocked(partition.run(done.until), Cause.STATE, "p0.spans")


def test_a_torn_tail_of_spans_is_undone_before_anybody_reads_it(partition: Partition) -> None:
    partition.publish(ours("web01", "a", 0, b"one\n"))
    partition.run_apart(fault="spanned")
    spans = partition.state / "p0.spans"
    spans.write_bytes(spans.read_bytes() + b"\0\0\0\n\0")

    done = partition.run()

    assert isinstance(done, Done)
    assert done.findings == ()


def test_a_lock_that_another_process_holds_blocks(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.lines("web01", b"one")
    partition.state.mkdir()
    monkeypatch.setattr("receiver.task._LOCK_PATIENCE", 0.1)

    with partition_lock(partition.state / "p0.lock", 0):
        outcome = partition.run()

    blocked(outcome, Cause.LOCKED, "p0.lock")
    assert isinstance(partition.run(), Done)


@pytest.mark.parametrize("kind", ["symlink", "folder", "pipe", "dangling"])
def test_what_is_no_regular_file_blocks_and_is_left_alone(partition: Partition, kind: str) -> None:
    partition.lines("web01", b"one")
    partition.output.mkdir()
    live, victim = partition.output / "web01.log", partition.folder / "victim"
    victim.write_bytes(b"precious\n")
    match kind:
        case "symlink":
            live.symlink_to(victim)
        case "dangling":
            live.symlink_to(partition.folder / "nowhere")
        case "folder":
            live.mkdir()
        case _:
            os.mkfifo(live)

    blocked(partition.run(), Cause.DISK, "web01.log", "move it away")
    assert victim.read_bytes() == b"precious\n"
    assert not (partition.folder / "nowhere").exists()


def test_a_live_file_that_was_cut_blocks_instead_of_being_filled_up(partition: Partition) -> None:
    partition.lines("web01", b"one")
    done = partition.receive()
    partition.lines("web01", b"two")
    partition.run_apart(done.until, fault="ended")
    os.truncate(partition.output / "web01.log", 1)

    blocked(partition.run(done.until), Cause.STATE, "web01.log has 1 bytes", "4")


def test_a_live_file_that_was_taken_away_blocks_an_undo(partition: Partition) -> None:
    partition.lines("web01", b"one")
    done = partition.receive()
    partition.lines("web01", b"two")
    partition.run_apart(done.until, fault="ended")
    (partition.output / "web01.log").unlink()

    blocked(partition.run(done.until), Cause.STATE, "web01.log is gone")


def test_a_broker_that_is_not_there_blocks(partition: Partition, free_port: object) -> None:
    away = replace(partition, url=f"nats://127.0.0.1:{free_port()}")  # type: ignore[operator]

    blocked(away.run(), Cause.BROKER)


def test_a_stream_that_is_gone_blocks(partition: Partition) -> None:
    partition.ask(lambda c: c.api("STREAM.DELETE.LOGS"))

    blocked(partition.run(), Cause.BROKER)


def test_claims_are_skipped_and_what_nobody_can_write_is_set_aside(partition: Partition) -> None:
    broken = ours("web01", "a", 0, b"one\n")[2]
    partition.publish(
        ("logs.p0.web01", b"", {"Log-Agent": "1-1", "Log-Lines": "0", "Log-Read-At": "1"}),
        ("logs.p0.a/b", b"evil\n", None),
        ("logs.p0.web01", b"no span", {**broken, "Log-Span": "x"}),
        ("logs.p0.web01", b"not zstd", {"Content-Encoding": "zstd"}),
        ("logs.p0.web01", zstandard.compress(b"a\n") + b"more", {"Content-Encoding": "zstd"}),
        ("logs.p0.web01", b"x", {"Content-Encoding": "br"}),
        ("logs.p0.web01", b"", None),
        ("logs.p0.web01", b"plain", None),
    )

    done = partition.run()

    assert isinstance(done, Done)
    assert (done.messages, done.quarantined, done.lines) == (8, 5, 2)
    assert partition.files() == {"web01.log": b"\nplain\n"}
    kept = sorted((partition.output / ".quarantine").iterdir())
    assert [path.name for path in kept] == [f"p0-{n}.msg" for n in range(2, 7)]
    head, _, payload = kept[0].read_bytes().partition(b"\n")
    about = json.loads(head)
    assert (about["subject"], about["sequence"], payload) == ("logs.p0.a/b", 2, b"evil\n")
    assert "'/'" in about["reason"]


def test_a_subject_that_is_not_utf8_is_set_aside_and_stops_nobody(partition: Partition) -> None:
    partition.lines("web01", b"one")
    _publish_raw(partition.url, b"PUB logs.p0.\xff\xfe 4\r\nevil\r\n")
    header = b"NATS/1.0\r\nX: \xff\xfe\r\n\r\n"
    _publish_raw(
        partition.url,
        b"HPUB logs.p0.web01 %d %d\r\n%stwo\r\n" % (len(header), len(header) + 3, header),
    )
    header = b"NATS/1.0 \xff\xfe\xff\r\n\r\n"
    _publish_raw(
        partition.url,
        b"HPUB logs.p0.web01 %d %d\r\n%sthree\r\n" % (len(header), len(header) + 5, header),
    )

    done = partition.run()

    assert isinstance(done, Done)
    assert (done.messages, done.quarantined) == (4, 1)
    assert partition.files() == {"web01.log": b"one\ntwo\nthree\n"}


def _publish_raw(url: str, command: bytes) -> None:
    user, _, rest = url.removeprefix("nats://").partition(":")
    password, _, place = rest.partition("@")
    host, _, port = place.partition(":")
    login = json.dumps({"verbose": False, "headers": True, "user": user, "pass": password})
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(b"CONNECT %s\r\n%sPING\r\n" % (login.encode(), command))
        heard = b""
        while b"PONG" not in heard:
            heard += connection.recv(4096)
        assert b"-ERR" not in heard


def test_a_host_of_253_bytes_has_a_file_of_its_own_that_can_be_rotated(
    partition: Partition,
) -> None:
    small = replace(partition, rotate_size=10)
    hosts = [f"{'a' * 250}.{n}" for n in (1, 2)]
    for host in hosts:
        small.lines(host, b"first of " + host[-1:].encode(), b"second")

    done = small.run()

    assert isinstance(done, Done)
    assert sorted(len(data) for data in small.files().values()) == [7, 7, 11, 11]
    assert all(len(name.encode()) < 240 for name in small.files())


def test_a_host_in_two_partitions_has_two_files_and_nobody_else_can_be_called_so(
    partition: Partition,
) -> None:
    other = replace(partition, number=1)
    other.claim()
    partition.lines("web01", b"mine")
    partition.lines("web01.p1", b"a host of that name")
    other.lines("web01", b"theirs")
    partition.receive()
    start = other.receive()

    assert start.lines == 1
    assert partition.files() == {
        "web01.log": b"mine\n",
        "web01.p1.log": b"a host of that name\n",
        "web01..p1.log": b"theirs\n",
    }


def test_gaps_and_repeats_are_found_across_batches_and_not_invented_by_an_undo(
    partition: Partition,
) -> None:
    partition.publish(ours("web01", "a", 0, b"12345\n"))
    first = partition.receive()
    partition.publish(ours("web01", "a", 6, b"67890\n"))
    partition.run_apart(first.until, fault="ended")
    partition.publish(
        ours("web01", "a", 6, b"67890\n"),
        ours("web01", "a", 9, b"90\nabc\n"),
        ours("web01", "a", 20, b"later\n"),
        ours("other", "a", 20, b"another host's file of that id\n"),
    )

    done = partition.run(first.until)

    assert isinstance(done, Done)
    assert [(f.kind, f.start, f.end) for f in done.findings] == [
        (Kind.REPEAT, 6, 12),
        (Kind.REPEAT, 9, 12),
        (Kind.GAP, 16, 20),
    ]
    assert partition.read("web01") == b"12345\n67890\nabc\nlater\n"


def test_segments_are_numbered_on_whichever_process_closes_them(partition: Partition) -> None:
    small = replace(partition, rotate_size=10)
    begin = 1
    for batch in range(6):
        small.lines("web01", *(b"batch %d line %d" % (batch, n) for n in range(2)))
        if batch % 2:
            assert small.run_apart(begin).returncode == 0
            done = begin + 2
        else:
            answer = small.run(begin)
            assert isinstance(answer, Done)
            done = answer.until
        if batch == 3:
            (small.output / "web01.log.000001").unlink()  # pruned
        begin = done
        small.move(begin)

    names = [name for name in small.files() if name != "web01.log"]
    assert names == [f"web01.log.{n:06d}" for n in range(2, 12)]
    lines = b"".join(b"batch %d line %d\n" % (b, n) for b in range(6) for n in range(2))
    assert small.read("web01") == lines.partition(b"\n")[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("full", ["out", "state"])
def test_a_full_disk_blocks_leaves_nothing_torn_and_goes_on_when_there_is_room(
    partition: Partition, small_disk: Path, full: str
) -> None:
    (small_disk / full).mkdir()
    (partition.folder / full).symlink_to(small_disk / full)
    filler = small_disk / "filler"
    partition.publish(
        *(ours("web01", "a", n * 1000, b"%05d" % n + b"x" * 994 + b"\n") for n in range(20))
    )
    done = partition.receive()
    before = partition.files()
    partition.publish(
        *(
            ours(f"host{n % 7}", f"f{n}", n * 1000, b"%05d" % n + b"x" * 994 + b"\n")
            for n in range(20, 300)
        )
    )
    with filler.open("wb") as file:
        room = os.statvfs(small_disk)
        spare = 100_000 if full == "out" else 0
        file.write(b"\0" * max(room.f_bavail * room.f_frsize - spare, 0))

    outcome = partition.run(done.until)
    again = partition.run(done.until)

    blocked(outcome, Cause.DISK, "No space left")
    blocked(again, Cause.DISK, "No space left")
    assert partition.files() == before
    os.truncate(filler, 0)
    assert isinstance(partition.run(done.until), Done)
    total = sum(len(data) for data in partition.files().values())
    assert total == 300 * 1000


def test_an_output_that_cannot_be_written_to_blocks(partition: Partition, small_disk: Path) -> None:
    partition.lines("web01", b"one")
    partition.output.symlink_to(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    blocked(partition.run(), Cause.DISK, "Read-only")

    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert isinstance(partition.run(), Done)
    assert partition.read("web01") == b"one\n"


def test_an_output_folder_that_is_missing_is_made(partition: Partition) -> None:
    deep = partition.with_folder(partition.folder / "deep")
    deep.lines("web01", b"one")
    nested = replace(deep, folder=deep.folder / "a")

    assert isinstance(nested.run(), Done)
    assert oct(nested.output.stat().st_mode & 0o777) == "0o750"
    assert oct((nested.output / "web01.log").stat().st_mode & 0o777) == "0o640"
