"""`logreceiver search` with a table: what is newer comes from the stream, each line once."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from broker.topology import Topology
from nats_logship.app.timestamps import parse_time
from nats_logship.client.connection import Connection
from nats_logship.history import Query
from receiver.search.find import TableFinder
from receiver.search.found import SearchStatus
from receiver.table.location import Location
from tests import secured
from tests.conftest import apply_topology
from tests.nats_logship.test_history import BEGAN, SECOND, Written
from tests.receiver.partition import api, lines_of, message, publish
from tests.receiver.search.searching import found, search
from tests.receiver.table.tabled import Tabled
from tests.support.processes import Processes

pytestmark = pytest.mark.nats

Options = Callable[..., list[str]]


@pytest.fixture
def options(tabled: Tabled) -> Options:
    """Return the options that search the table and the stream."""
    return lambda *more: ["--server", tabled.url, "--table", tabled.location.uri, *more]


def ship(tabled: Tabled, *numbers: int, host: str = "web01") -> None:
    """Publish a message for each number, which is its only line."""
    tabled.publish(*(tabled.ship(host, "a", b"line %d\n" % number) for number in numbers))


def expect(first: int, until: int, host: str = "") -> bytes:
    return b"".join(f"{host}line {number}\n".encode() for number in range(first, until))


def test_lines_of_the_table_and_newer_ones_come_once_and_in_order(
    tabled: Tabled, options: Options
) -> None:
    ship(tabled, *range(5))
    tabled.write()
    ship(tabled, *range(5, 9))

    assert found(*options()) == expect(0, 9, "web01: ")
    assert found(*options("--host", "web01", "--limit", "6")) == expect(3, 9)
    assert found(*options("--host", "web01", "--since", "1d", "--limit", "6")) == expect(0, 6)
    assert found(*options("--host", "web01", "--no-stream")) == expect(0, 5)
    assert found("--server", tabled.url, "--host", "web01") == expect(0, 9)
    assert found(*options("--until", "1d")) == b""
    assert found(*options("--match", "line [48]")) == b"web01: line 4\nweb01: line 8\n"


def test_a_search_while_lines_arrive_and_are_committed_misses_and_repeats_none(
    tabled: Tabled, options: Options
) -> None:
    ship(tabled, *range(3))
    tabled.write()
    ended, sent = threading.Event(), [3]

    def go_on() -> None:
        while not ended.is_set():
            ship(tabled, sent[0])
            sent[0] += 1
            if sent[0] % 7 == 0:
                tabled.write()

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        for _ in range(5):
            before = sent[0]
            lines = found(*options("--host", "web01")).splitlines()
            assert lines == expect(0, len(lines)).splitlines()
            assert len(lines) >= before
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("last", [False, True], ids=["all", "the last"])
async def test_lines_that_leave_the_stream_meanwhile_come_from_the_newer_table(
    tabled: Tabled, last: bool
) -> None:
    await asyncio.to_thread(ship, tabled, *range(4))
    await asyncio.to_thread(tabled.write)
    await asyncio.to_thread(ship, tabled, *range(4, 8))
    connection = Connection([tabled.url], "tests")
    await connection.connect()
    finder = TableFinder(tabled.location.uri, {}, Query(), connection, SearchStatus())
    await finder.open()

    await asyncio.to_thread(tabled.write)
    await asyncio.to_thread(ship, tabled, 8)
    await asyncio.to_thread(api, tabled.url, "STREAM.PURGE.LOGS", {"seq": 7})
    groups = [await finder.find_last(9)] if last else [one async for one in finder.find(None)]
    await connection.close()

    lines = b"".join(one.lines for group in groups for one in group)
    assert lines == expect(0, 9)


class Expiring(Connection):
    """A connection to a stream that removes its first message whenever it is read."""

    async def publish(self, subject: str, *data: Any, **options: Any) -> None:
        if ".DIRECT.GET." in subject:
            state = (await self.api("STREAM.INFO.LOGS"))["state"]
            await self.api("STREAM.PURGE.LOGS", {"seq": state["first_seq"] + 1})
        await super().publish(subject, *data, **options)


@pytest.mark.parametrize("last", [False, True], ids=["all", "the last"])
@pytest.mark.parametrize("removed", [0, 6], ids=["at its end", "behind"])
async def test_a_search_ends_where_a_stream_removes_what_the_table_lacks(
    tabled: Tabled, caplog: pytest.LogCaptureFixture, removed: int, last: bool
) -> None:
    await asyncio.to_thread(ship, tabled, *range(4))
    await asyncio.to_thread(tabled.write)
    await asyncio.to_thread(ship, tabled, *range(4, 20))
    await asyncio.to_thread(api, tabled.url, "STREAM.PURGE.LOGS", {"seq": removed or 5})
    connection = Expiring([tabled.url], "tests")
    await connection.connect()
    finder = TableFinder(tabled.location.uri, {}, Query(), connection, SearchStatus())
    await finder.open()

    groups = [await finder.find_last(99)] if last else [one async for one in finder.find(None)]
    await connection.close()

    lines = b"".join(one.lines for group in groups for one in group)
    first = 20 - lines.removeprefix(expect(0, 4)).count(b"\n")
    assert lines == expect(0, 4) + expect(first, 20)
    assert first < 10
    missing = re.findall("missing: sequences ([0-9]+) to ([0-9]+)", caplog.text)
    numbers = [n for low, high in missing for n in range(int(low), int(high) + 1)]
    assert numbers == [*range(5, 5 + len(numbers))]  # each once
    assert caplog.text.count("lines may be missing") == 1


def test_lines_of_streams_that_the_table_has_up_to_other_times_come_in_order(
    fresh_url: str, tmp_path: Path
) -> None:
    apply_topology(fresh_url, Topology(partitions=2, stream_count=2))
    texts = [b"line %d\n" % number for number in range(10)]
    publish(
        fresh_url,
        *((f"logs.p{n % 2}.web0{n % 2}", text, None) for n, text in enumerate(texts)),
    )
    for stream, known in ("LOGS_0", 5), ("LOGS_1", 2):
        written = Written(tmp_path / "table")
        written.stream = f"{stream}/{api(fresh_url, f'STREAM.INFO.{stream}')['created']}"
        for sequence in range(1, known + 1):
            answer = api(fresh_url, f"STREAM.MSG.GET.{stream}", {"seq": sequence})["message"]
            seconds = Fraction(parse_time(answer["time"]) - BEGAN, SECOND)
            written.add((answer["subject"][8:], "", seconds, b64decode(answer["data"])))

    for more, lines in (
        ((), texts),
        (("--limit", "3"), texts[7:]),
        (("--since", "1d", "--limit", "7"), texts[:7]),
        (("--match", "[3-8]$"), texts[3:9]),
    ):
        shown = found("--server", fresh_url, "--table", tmp_path / "table", *more)
        assert [line[7:] for line in shown.splitlines(keepends=True)] == lines


def test_lines_that_are_in_neither_are_reported(tabled: Tabled, options: Options) -> None:
    ship(tabled, *range(4))
    tabled.write()
    ship(tabled, *range(4, 8))
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 7})

    ended = search(*options("--host", "web01"), code=1)

    assert ended.stdout.encode() == expect(0, 4) + expect(6, 8)
    assert "lines are missing: sequences 5 to 6 of stream LOGS" in ended.stderr


def test_lines_from_before_the_table_began_come_from_the_stream(
    tabled: Tabled, options: Options
) -> None:
    ship(tabled, *range(8))
    tabled.write(since=5)

    assert found(*options("--host", "web01")) == expect(0, 8)
    assert found(*options("--host", "web01", "--limit", "7")) == expect(1, 8)


def test_a_table_from_a_backup_and_a_stream_made_again_are_joined(
    tabled: Tabled, options: Options, tmp_path: Path
) -> None:
    ship(tabled, *range(4))
    tabled.write()
    shutil.copytree(tabled.location.uri, tmp_path / "backup")
    ship(tabled, *range(4, 8))
    tabled.write()
    shutil.rmtree(tabled.location.uri)
    shutil.move(tmp_path / "backup", tabled.location.uri)

    assert found(*options("--host", "web01")) == expect(0, 8)
    config = api(tabled.url, "STREAM.INFO.LOGS")["config"]
    tabled.write()
    api(tabled.url, "STREAM.DELETE.LOGS")
    api(tabled.url, "STREAM.CREATE.LOGS", config)
    ship(tabled, 8, 9)
    assert found(*options("--host", "web01")) == expect(0, 10)


def test_context_crosses_from_the_table_to_the_stream_and_partitions(
    tabled: Tabled, options: Options
) -> None:
    ship(tabled, *range(3))
    ship(tabled, 99, host="web02")
    tabled.write()
    host, payload, headers = tabled.ship("web01", "a", b"line 3\nline 4\n")
    tabled.publish((host.replace(".p0.", ".p1."), payload, headers))
    ship(tabled, 5, 6)

    around = options("--context", "2", "--match")
    assert found(*around, "line 2").replace(b"web01: ", b"") == expect(0, 5)
    assert found(*around, "line 3").replace(b"web01: ", b"") == expect(1, 6)
    assert found(*around, "line 6").replace(b"web01: ", b"") == expect(4, 7)
    assert found(*around, "line [34]").replace(b"web01: ", b"") == expect(1, 7)
    apart = found(*options("--context", "1", "--host", "web01", "--match", "line [06]"))
    assert apart == expect(0, 2) + b"--\n" + expect(5, 7)


def test_records_are_found_whole_in_the_table_and_in_the_stream(
    tabled: Tabled, options: Options
) -> None:
    def trace(start: int) -> None:
        section, lines = lines_of("a", start, b"1 a\n at a\n2 b\n at b\n3 c\n")
        tabled.publish(message("web01", (replace(section, records="start:^[0-9]"), lines)))

    trace(0)
    tabled.write()
    trace(100)

    assert found(*options("--host", "web01", "--match", "at b")) == b"2 b\n at b\n" * 2
    assert found(*options("--host", "web01", "--match", "at b", "--limit", "1")) == b"2 b\n at b\n"


@pytest.mark.parametrize(
    ("match", "context", "shown"),
    [
        ("at", 1, b"1 a\n at a\n2 b\n at b\n3 c\n"),
        ("at b", 1, b"1 a\n at a\n2 b\n at b\n3 c\n"),
        ("3 c", 1, b"2 b\n at b\n3 c\n"),
        ("1 a", 2, b"1 a\n at a\n2 b\n at b\n3 c\n"),
    ],
)
def test_context_is_counted_in_records_in_the_table_as_in_the_stream(
    tabled: Tabled, options: Options, match: str, context: int, shown: bytes
) -> None:
    section, lines = lines_of("a", 0, b"1 a\n at a\n2 b\n at b\n3 c\n")
    tabled.publish(message("web01", (replace(section, records="start:^[0-9]"), lines)))
    tabled.write()

    asked = ["--host", "web01", "--match", match, "--context", context]
    assert found(*options("--no-stream", *asked)) == shown
    assert found("--server", tabled.url, *asked) == shown


@pytest.mark.parametrize(
    ("pieces", "records"),
    [
        ([b"1 a\n2 b\n", b" x\n", b" at\n3 c\n"], "start:^[0-9]"),
        ([b"1 a\n a", b"t x\n2 b\n"], "start:^[0-9]"),
        ([b"a\nb", b"c a", b"t d\ne\n"], ""),
        ([b"1 a\n2 b\n at", b" the end"], "start:^[0-9]"),
    ],
    ids=["records", "inside a line", "a line", "no end"],
)
def test_what_is_in_several_messages_is_shown_by_a_table_as_by_the_stream(
    tabled: Tabled, options: Options, pieces: list[bytes], records: str
) -> None:
    at = 0
    for piece in pieces:
        section, lines = lines_of("a", at, piece)
        is_last = piece is pieces[-1] and piece.endswith(b"\n")
        section = replace(section, records=records, rest="" if is_last else "kept")
        tabled.publish(
            message("web01", (section, lines), lines_of("b", at, b"3 b\n x\n")),
            message("web02", lines_of("a", at, b"3 c\n")),
        )
        at += len(piece)
        tabled.write()

    stream, table = ["--server", tabled.url], options("--no-stream")
    of_one = ["--host", "web01", "--file", "a"]
    for asked in (
        of_one,
        [*of_one, "--match", "[12bx]", "--limit", "2"],
        [*of_one, "--match", "[12bx]", "--limit", "2", "--since", "1d"],
        [*of_one, "--match", "at", "--json"],
        [*of_one, "--match", "at", "--context", "1"],
        ["--json"],
    ):
        of_table, of_stream = [search(*one, *asked).stdout for one in (table, stream)]
        if "--host" not in asked:  # the stream's are found when they are complete
            of_table, of_stream = [sorted(one.splitlines()) for one in (of_table, of_stream)]
        assert of_table == of_stream, asked


def test_levels_and_files_are_chosen_alike_in_the_table_and_in_the_stream(
    tabled: Tabled, options: Options
) -> None:
    lines = b"INFO a\nlevel=warn b\n[error] c\nFATAL d\nan ERRORLESS e\n"
    tabled.publish(
        tabled.ship("web01", "x.log", lines), tabled.ship("web01", "y.log", b"ERROR f\n")
    )
    tabled.write()
    tabled.publish(tabled.ship("web01", "x.log", lines))

    chosen = found(*options("--host", "web01", "--level", "warning", "--file", "x.*"))
    assert chosen == b"level=warn b\n[error] c\nFATAL d\n" * 2
    assert found(*options("--host", "web01", "--level", "critical", "--file", "/*/x.log")) == (
        b"FATAL d\n" * 2
    )


def test_bytes_that_are_no_utf8_come_as_they_are_and_in_json_by_their_key(
    tabled: Tabled, options: Options
) -> None:
    latin = "Grüße\n".encode("latin-1")
    tabled.publish(tabled.ship("web01", "a", b"x\n" + latin))
    tabled.write()
    tabled.publish(tabled.ship("web01", "a", latin))

    assert found(*options("--host", "web01", "--match", "^Gr")) == latin * 2
    objects = [json.loads(line) for line in found(*options("--json", "--match", "Gr")).splitlines()]
    keys = [(one["sequence"], one["pos"], one["file"], one["host"]) for one in objects]
    assert keys == [(1, 1, "/var/log/a", "web01"), (2, 0, "/var/log/a", "web01")]
    assert {one["line"] for one in objects} == {"Gr\udcfc\udcdfe"}
    assert objects[0]["stream"] == objects[1]["stream"]
    assert objects[0]["time"] < objects[1]["time"]


@pytest.mark.filterwarnings("ignore")
def test_a_table_in_an_object_store_is_searched_too(
    tabled: Tabled, s3: Location, options: Options
) -> None:
    tabled.location = s3
    ship(tabled, *range(3))
    tabled.write()
    ship(tabled, 3)

    given = [part for pair in s3.options for part in ("--storage-option", "=".join(pair))]
    assert found(*options("--host", "web01", "--match", "[1-9]", *given)) == expect(1, 4)


def test_a_missing_package_is_named_with_the_extra_that_has_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['duckdb'] = None; from receiver.__main__ import main; main()"
    command = [sys.executable, "-c", code, "search", "--no-stream", "--table", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 78
    assert ended.stderr == "logreceiver: duckdb is missing: install nats-logship[table]\n"


@pytest.mark.parametrize("name", ["all", "m1"])
def test_the_rights_of_a_receiver_of_all_partitions_and_of_a_monitor_suffice(
    processes: Processes, tmp_path: Path, name: str
) -> None:
    granted = secured.receiver("all"), secured.monitor("m1")
    server = secured.start_secured(processes, tmp_path, *granted)
    tabled = Tabled(server.address, Location(str(tmp_path / "t")), access=server.access("all"))
    payloads = [b"", b"1\n", b"", b"2\n", b""]  # empty messages are dangerous across accounts
    publish(server.url(), *(("logs.p0.web01", data, None) for data in payloads))
    tabled.write()
    publish(server.url(), *(("logs.p0.web01", data, None) for data in [b"", b"3\n", b""]))

    shown = found(*server.options(name), "--table", tabled.location.uri, "--context", "1")
    assert shown == b"web01: 1\nweb01: 2\nweb01: 3\n"
    assert "Violation" not in server.read_log()
