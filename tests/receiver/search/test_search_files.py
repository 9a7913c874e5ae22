"""`logreceiver search` in received files: closed, compressed and live ones, then the stream."""

import asyncio
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nats_logship.client.connection import Connection
from nats_logship.history import Query
from nats_logship.wire.message import EXPECTED_SEQUENCE
from receiver.search.files import FilesFinder
from receiver.search.find import make_filter
from receiver.search.found import SearchStatus
from receiver.search.received import ReceivedFiles, ReceivedPart
from receiver.storage.layout import Layout
from receiver.storage.segments import SegmentCleaner, SegmentPolicy
from tests.receiver.partition import Partition, api, lines_of, message, ours
from tests.receiver.search.searching import found, search

pytestmark = pytest.mark.nats


def numbered(first: int, until: int) -> list[bytes]:
    return [b"line %d\n" % number for number in range(first, until)]


def compress(partition: Partition, method: str) -> None:
    policy = SegmentPolicy(
        partition.output, partition.state, method, layout=Layout(partition.template)
    )
    SegmentCleaner(policy, time.time_ns).clean(lambda: False)


def options(partition: Partition, *more: str) -> list[str]:
    folders = "--output", str(partition.output), "--state-dir", str(partition.state)
    return ["--server", partition.url, *folders, *more]


@pytest.mark.parametrize("method", ["zstd", "gzip", "none"])
def test_closed_and_live_files_and_newer_lines_come_once_and_in_order(
    partition: Partition, method: str
) -> None:
    rotating = replace(partition, rotate_size=40)
    for first in range(0, 30, 5):
        rotating.lines("web01", *numbered(first, first + 5))
        for _ in range(4):  # a batch ends when a file is full
            rotating.start()
    compress(rotating, method)
    rotating.lines("web01", *numbered(30, 33))
    rotating.lines("web02", b"other\n")

    everything = b"".join(numbered(0, 33))
    assert len(list(partition.output.glob("web01.log.0*"))) > 3
    assert found(*options(partition, "--host", "web01")) == everything
    assert found(*options(partition, "--host", "web01", "--no-stream")) == b"".join(numbered(0, 30))
    last = found(*options(partition, "--host", "web01", "--limit", "12"))
    assert last == b"".join(numbered(21, 33))
    assert (
        found(*options(partition, "--match", "other|line 1$")) == b"web01: line 1\nweb02: other\n"
    )


def test_context_is_of_the_same_file_and_times_are_those_in_lines(partition: Partition) -> None:
    day = b"2026-11-20T14:%02d:00Z line %d\n"
    partition.lines("web01", b"no time\n", *(day % (n, n) for n in range(60)), b"  at x\n")
    partition.start()

    files = options(partition, "--host", "web01", "--no-stream")
    around = found(*files, "--match", "line (3|10|12)$", "--context", "1")
    assert [one.count(b"\n") for one in around.split(b"--\n")] == [3, 5]
    times = "--since", "2026-11-20T14:58", "--until", "2026-11-20T15:00+01:00"
    assert found(*files, *times[2:], "--match", "x|line [12]$") == b""
    assert found(*files, *times[:2]) == b"no time\n" + day % (58, 58) + day % (59, 59) + b"  at x\n"


def test_the_last_lines_have_their_context_in_files_and_in_the_stream(partition: Partition) -> None:
    def expect(*numbers: int) -> bytes:
        return b"".join(b"line %d\n" % number for number in numbers)

    partition.lines("web01", *numbered(0, 10))
    partition.start()
    asked = options(partition, "--host", "web01", "--context", "1", "--match")
    assert found(*asked, "line [368]", "--limit", "2") == expect(5, 6, 7, 8, 9)
    assert found(*asked, "line [67]", "--limit", "1") == expect(6, 7, 8)
    assert found(*asked, "line [16]", "--limit", "5") == expect(0, 1, 2) + b"--\n" + expect(5, 6, 7)
    partition.lines("web01", *numbered(10, 13))
    last = found(*asked, "line (3|8|11)", "--limit", "2")
    assert last == expect(7, 8, 9) + b"--\n" + expect(10, 11, 12)


@pytest.mark.parametrize("since", [[], ["--since", "2026-11-20T14:00"]], ids=["last", "first"])
def test_the_context_of_a_block_s_last_line_is_in_the_next_block(
    partition: Partition, since: list[str]
) -> None:
    """Blocks are of 512 KiB; `--limit` ends the search at this very line."""
    row = "2026-11-20T14:03:00Z line {:<37}\n".format
    last = 512 * 1024 // len(row("")) - 1
    lines = [row(f"{number:05d}").encode() for number in range(last + 10)]
    assert len(b"".join(lines[: last + 1])) == 512 * 1024
    for at in range(0, len(lines), 1000):
        partition.lines("web01", b"".join(lines[at : at + 1000]))
    partition.start()

    asked = options(partition, "--no-stream", "--match", f"{last:05d}", "--context", "2")
    around = found(*asked, "--host", "web01", "--limit", "1", *since)
    assert around == b"".join(lines[last - 2 : last + 3])


def test_the_last_lines_are_the_newest_of_all_files_and_streams(partition: Partition) -> None:
    def line(minute: int, zone: int = 0) -> bytes:
        at = time.time() + 60 * minute + 3600 * zone  # noqa: TID251
        text = "%Y-%m-%dT%H:%M:%S" + ("" if zone else "Z")
        return f"{time.strftime(text, time.gmtime(at))} {minute}\n".encode()

    partition.lines("web02", *map(line, (-45, -4)), b" rest of -4\n")
    partition.lines("web03", line(-13, 1), line(-3, 1))  # an hour ahead, and no zone
    partition.start()
    partition.lines("web01", *map(line, (-50, -30, -2)))
    partition.start()
    partition.lines("web02", line(0))

    def ends(limit: int, *more: str) -> list[bytes]:
        lines = found(*options(partition, "--limit", str(limit), *more)).splitlines()
        return [one[:6] + one.rpartition(b" ")[2] for one in lines]

    newest = [b"web02:-45", b"web01:-30", b"web03:-13", b"web02:-4", b"web02:-4", b"web03:-3"]
    newest += [b"web01:-2", b"web02:0"]
    for limit in range(1, 9):
        assert ends(limit) == newest[-limit:]
    assert ends(2, "--match", "rest|-45") == [newest[0], newest[4]]


def test_the_first_lines_are_the_oldest_of_all_files_and_streams(partition: Partition) -> None:
    began = time.time()  # noqa: TID251

    def line(minute: int) -> bytes:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began + 60 * minute))
        return f"{at} {minute}\n".encode()

    partition.lines("web02", *map(line, (-45, -4)), b" rest of -4\n")
    partition.lines("web03", line(-13), line(-3))
    partition.start()
    partition.lines("web01", *map(line, (-50, -30, -2)))
    partition.start()
    partition.lines("web02", line(0))

    def begins(limit: int, *more: str) -> list[bytes]:
        asked = options(partition, "--since", "1h", "--limit", str(limit), *more)
        return [one[:6] + one.rpartition(b" ")[2] for one in found(*asked).splitlines()]

    oldest = [b"web01:-50", b"web02:-45", b"web01:-30", b"web03:-13", b"web02:-4", b"web02:-4"]
    oldest += [b"web03:-3", b"web01:-2", b"web02:0"]
    for limit in range(1, 10):
        assert begins(limit) == oldest[:limit]
    assert begins(2, "--match", "rest|-45|-2|0$", "--no-stream") == [oldest[0], oldest[1]]
    assert begins(9, "--match", "-13|0$") == [oldest[0], oldest[2], oldest[3], oldest[8]]
    assert begins(2, "--match", "-45|-13", "--context", "1") == [
        *(oldest[1], oldest[4]),
        *(oldest[3], oldest[6]),
    ]


def test_the_first_lines_are_of_hosts_that_say_when_they_were_stored(partition: Partition) -> None:
    now = datetime.now(UTC).isoformat().encode()  # noqa: TID251
    partition.lines("web02", *(b"%s %d\n" % (now, number) for number in range(3)))
    partition.lines("web01", *(b"plain %d\n" % number for number in range(9)))
    partition.start()

    lines = found(*options(partition, "--since", "1h", "--limit", "5", "--no-stream")).splitlines()
    assert [one.split(b": ")[0] for one in lines] == [b"web02"] * 3 + [b"web01"] * 2


def test_the_first_lines_of_closed_and_live_files_are_in_order(partition: Partition) -> None:
    rotating = replace(partition, rotate_size=100)
    for number in range(24):
        now = datetime.now(UTC).isoformat().encode()  # noqa: TID251
        rotating.lines(f"web0{1 + number % 3 // 2}", b"%s %d\n" % (now, number))
        if number % 6 == 5:
            rotating.start()
    compress(rotating, "zstd")

    assert list(partition.output.glob("web01.log.0*"))
    for limit in (1, 2, 5, 12, 23, 30):
        lines = found(*options(partition, "--since", "1h", "--limit", str(limit))).splitlines()
        assert [int(one.rpartition(b" ")[2]) for one in lines] == [*range(min(limit, 24))]


def test_a_time_without_a_zone_may_be_of_any_unless_a_zone_is_given(partition: Partition) -> None:
    lines = [
        b"Nov 20 09:30:00 web01 app: at 14:30 in New York\n",
        b"2026-11-20T14:40:00Z in UTC\n",
        b"2026-11-20 09:50:00,123 at 14:50 in New York\n",
    ]
    day = "2026-11-20T"
    partition.lines("web01", *lines)
    partition.start()

    files = options(partition, "--host", "web01", "--no-stream")
    assert found(*files, "--since", f"{day}14:45Z") == lines[0] + lines[2]
    assert found(*files, "--until", f"{day}09:40Z") == lines[0] + lines[2]
    of_zone = [*files, "--time-zone", "America/New_York"]
    assert found(*of_zone, "--since", f"{day}14:35Z") == lines[1] + lines[2]
    assert found(*of_zone, "--until", f"{day}09:45") == b"".join(lines[:2])
    assert found(*files, "--time-zone", "UTC", "--since", f"{day}09:40Z") == lines[1] + lines[2]


@pytest.mark.parametrize("asked", [["--match", "b|ERROR"], ["--level", "error"]])
def test_a_line_without_a_time_has_that_of_the_line_before_it_though_this_does_not_match(
    partition: Partition, asked: list[str]
) -> None:
    lines = b"10:00:00Z ERROR a\n", b"14:59:00Z INFO c\n", b"  ERROR d\n", b"15:01:00Z INFO e\n"
    partition.lines("web01", *(b"2026-11-20T" * (b"Z" in line) + line for line in lines))
    partition.start()

    files = options(partition, "--host", "web01", "--no-stream")
    assert found(*files, *asked, "--since", "2026-11-20T14:58Z") == lines[2]
    assert found(*files, *asked, "--since", "2026-11-20T15:00Z") == b""


def test_files_of_sources_are_chosen_by_their_paths(partition: Partition) -> None:
    named = replace(partition, template="{host}/{file}")
    named.publish(
        message("web01", lines_of("a.log", 0, b"a\n"), lines_of("b.log", 0, b"b\n")),
    )
    named.start()
    named.publish(message("web01", lines_of("a.log", 2, b"more\n")))

    assert found(*options(named, "--host", "web01", "--file", "a.*")) == b"a\nmore\n"
    partition.lines("web01", b"x\n")


def test_files_of_hosts_without_sources_cannot_be_chosen(partition: Partition) -> None:
    partition.lines("web01", b"x\n")
    partition.start()

    refused = search(*options(partition, "--file", "a.log"), code=78)
    assert "do not say from which source file" in refused.stderr


def test_a_host_that_moves_is_found_in_its_file_and_in_both_partitions(
    logs_url: str, tmp_path: Path
) -> None:
    old = Partition(logs_url, tmp_path, 1, partitions=2)
    new = replace(old, number=0)
    old.lines("web01", b"first\n")
    old.start()
    old.lines("web01", b"second\n")
    new.lines("web01", b"third\n")

    of_host = options(old, "--host", "web01")
    assert found(*of_host) == b"first\nsecond\nthird\n"
    assert found(*of_host, "--limit", "2") == b"second\nthird\n"
    assert found(*of_host, "--match", "second", "--context", "1") == b"second\nthird\n"


def test_a_file_that_cannot_be_read_is_named(partition: Partition) -> None:
    rotating = replace(partition, rotate_size=1)
    for number in range(3):
        rotating.lines("web01", b"line %d\n" % number)
        rotating.start()
    compress(rotating, "zstd")
    (closed, *_) = sorted(partition.output.glob("web01.log.*.zst"))
    closed.write_bytes(b"no zstd")

    ended = search(*options(partition, "--no-stream", "--host", "web01"), code=1)
    assert ended.stdout.splitlines() == ["line 1", "line 2"]
    assert "lines are missing: web01.log.000001 cannot be read" in ended.stderr


def test_no_store_at_all_is_an_error(partition: Partition, tmp_path: Path) -> None:
    refused = search("--output", tmp_path, "--no-stream", code=78)
    assert "are --output and --state-dir right?" in refused.stderr


@pytest.mark.parametrize("has_begun", [False, True], ids=["all", "the store first"])
def test_a_copy_of_the_folders_has_all_lines_of_its_store(
    partition: Partition, tmp_path: Path, has_begun: bool
) -> None:
    rotating, copy = replace(partition, rotate_size=1), tmp_path / "copy"
    for number in range(3):
        rotating.lines("web01", b"line %d\n" % number)
        rotating.start()
    shutil.copytree(partition.state, copy / "state")
    if has_begun:
        rotating.lines("web01", b"line 3\n")
        rotating.start()
    shutil.copytree(partition.output, copy / "out")

    copied = options(replace(partition, folder=copy), "--no-stream", "--host", "web01")
    assert found(*copied) == b"".join(numbered(0, 3))


def search_in(
    partition: Partition, *, purged: int = 0, last: int | None = None
) -> tuple[bytes, bool]:
    """Return all lines, and whether some are missing; messages may be purged meanwhile."""
    received = ReceivedFiles.read(partition.output, partition.state, None)

    async def ask(connection: Connection) -> tuple[bytes, bool]:
        finder = await FilesFinder.open(received, Query(), 0, connection, SearchStatus())
        if purged:
            await connection.api("STREAM.PURGE.LOGS", {"seq": purged})
        groups = [one async for one in finder.find(None)] if last is None else []
        groups += [] if last is None else [await finder.find_last(last)]
        return b"".join(one.lines for group in groups for one in group), finder.is_incomplete

    return partition.ask(ask)


def test_lines_are_missing_if_a_file_is_damaged_or_replaced(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    rotating = replace(partition, rotate_size=1)
    for line in numbered(0, 3):
        rotating.lines("web01", line)
        rotating.start()
    compress(rotating, "gzip")
    assert search_in(partition) == (b"".join(numbered(0, 3)), False)

    (closed, other) = sorted(partition.output.glob("web01.log.*.gz"))
    whole = closed.read_bytes()
    closed.write_bytes(whole[:-9])
    assert search_in(partition)[1]
    closed.write_bytes(whole)
    other.unlink()
    assert search_in(partition) == (b"line 0\nline 2\n", True)

    shutil.copy(partition.live, partition.output / "edited")
    (partition.output / "edited").replace(partition.live)
    assert search_in(partition) == (b"line 0\n", True)
    assert "web01.log cannot be read: [Errno 2] was deleted or replaced meanwhile" in caplog.text


@pytest.mark.parametrize("last", [None, 99], ids=["all", "the last"])
def test_lines_that_a_stream_removes_before_they_are_read_are_missing(
    partition: Partition, caplog: pytest.LogCaptureFixture, last: int | None
) -> None:
    partition.lines("web01", *numbered(0, 3))
    partition.start()
    partition.lines("web01", *numbered(3, 9))

    lines, is_incomplete = search_in(partition, purged=7, last=last)

    assert lines == b"".join([*numbered(0, 3), *numbered(6, 9)])
    assert is_incomplete
    assert [one.message for one in caplog.records] == [
        "lines are missing: a stream removed messages before they were read; search again"
    ]


def test_lines_that_a_stream_removed_before_they_were_received_are_missing(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(partition, number=1)
    other.claim()
    partition.lines("web01", *numbered(0, 3))
    partition.start()
    other.start()
    partition.lines("web01", *numbered(3, 8))
    api(partition.url, "STREAM.PURGE.LOGS", {"seq": 6})

    assert search_in(partition) == (b"".join([*numbered(0, 3), *numbered(5, 8)]), True)
    assert len(caplog.records) == 1
    assert "lines are missing: sequences 4 to 5 of stream LOGS were removed" in caplog.text


def test_a_message_without_its_predecessor_shows_that_lines_are_missing(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is known of the stream's other partition: others receive it."""
    for number, line in enumerate(numbered(0, 4)):
        subject, payload, headers = ours("web01", "a", 7 * number, line)
        partition.publish((subject, payload, headers | {EXPECTED_SEQUENCE: str(number)}))
        if number == 1:
            partition.start()
    api(partition.url, "STREAM.PURGE.LOGS", {"seq": 4})

    assert search_in(partition) == (b"line 0\nline 1\nline 3\n", True)
    assert "lines are missing: sequences 3 to 3 of stream LOGS" in caplog.text


def test_nothing_is_missing_if_a_stream_removes_what_was_received(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    """The other partition has no newer messages, and ends far before the stream's first."""
    other = replace(partition, number=1)
    other.claim()
    other.lines("web02", b"other\n")
    other.start()
    partition.lines("web01", *numbered(0, 3))
    partition.start()
    api(partition.url, "STREAM.PURGE.LOGS", {"seq": 3})
    partition.lines("web01", *numbered(3, 5))

    everything = b"".join([*numbered(0, 3), b"other\n", *numbered(3, 5)])
    assert search_in(partition, purged=5) == (everything, False)
    assert not caplog.records


def make_parts(output: Path, count: int) -> list[ReceivedPart]:
    """Write files of a line each; return them in their order."""
    for number, line in enumerate(numbered(0, count)):
        (output / f"{number}.log").write_bytes(line)
    return [
        ReceivedPart("web01", "", f"{number}.log", size=9, begins=number, ends=number)
        for number in range(count)
    ]


def finder_of(received: ReceivedFiles) -> FilesFinder:
    return FilesFinder(received, Query(), make_filter(Query()), 0, SearchStatus())


async def test_a_slow_reader_gets_all_files_in_order_and_few_are_searched_ahead(
    tmp_path: Path,
) -> None:
    class CountedFiles(ReceivedFiles):
        opened = 0

        def open(self, part: ReceivedPart) -> Any:
            CountedFiles.opened += 1
            return super().open(part)

    cores = os.cpu_count() or 1
    parts, shown, ahead = make_parts(tmp_path, 8 * cores), list[bytes](), 0
    async for some in finder_of(CountedFiles(tmp_path, parts=parts)).find(None):
        shown += [one.lines for one in some]
        await asyncio.sleep(0.02)
        ahead = max(ahead, CountedFiles.opened - len(shown))

    assert shown == numbered(0, len(parts))
    assert ahead <= 2 * cores


async def test_an_error_in_the_search_of_a_file_ends_the_search(tmp_path: Path) -> None:
    class BrokenFiles(ReceivedFiles):
        def open(self, part: ReceivedPart) -> Any:
            if part.path == "1.log":
                raise MemoryError
            return super().open(part)

    groups = finder_of(BrokenFiles(tmp_path, parts=make_parts(tmp_path, 3))).find(None)
    assert [one.lines for one in await anext(groups)] == [b"line 0\n"]
    with pytest.raises(MemoryError):
        await anext(groups)
