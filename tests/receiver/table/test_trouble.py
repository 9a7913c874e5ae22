"""Tables in trouble: of other programs, changed by persons, removed or exchanged while written."""

import asyncio
import errno
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from click import UsageError
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.schema import Field, PrimitiveType

from nats_logship.app.configuration import ProgramSettings, load
from nats_logship.app.exits import ConfigurationError, Exit, OperatorError
from nats_logship.app.faults import VARIABLE
from nats_logship.app.secret_files import head_of
from nats_logship.app.timestamps import SECOND
from nats_logship.client.connection import Connection
from nats_logship.wire.restored import ANCESTRY
from receiver.search.settings import SearchSettings
from receiver.table import log
from receiver.table.columns import LINES
from receiver.table.compact import Group, merge_files
from receiver.table.location import Location
from receiver.table.log import Log, Overtaken
from receiver.table.meter import TableMeter
from receiver.table.parquet import File
from receiver.table.plan import Range
from receiver.table.settings import TableSettings
from receiver.table.write import Written
from receiver.table.writer import JobFailed
from tests.receiver.partition import api
from tests.receiver.table.tabled import Tabled, make_writer
from tests.support import forks
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


def make_foreign(lines: str) -> None:
    write_deltalake(lines, pa.table({"line": ["a", "b"]}))


def drop_a_column(lines: str) -> None:
    rows = DeltaTable(lines).to_pyarrow_table()
    write_deltalake(lines, rows.drop_columns("level"), mode="overwrite", schema_mode="overwrite")


def need_newer_readers(lines: str) -> None:
    feature = TableFeatures.DeletionVectors
    DeltaTable(lines).alter.add_feature(feature, allow_protocol_versions_increase=True)


def kill_at(point: str, tabled: Tabled, folder: Path) -> None:
    """Write the table by a process that dies at a fault point."""
    (faults := folder / "faults").mkdir()
    (faults / point).touch()
    with Processes(folder) as processes:
        command = ["-m", "tests.receiver.table.tabled", tabled.url, tabled.location.uri, "0"]
        once = processes.start("once", [sys.executable, *command], {VARIABLE: str(faults)})
        assert once.wait(120) == -9, once.read_log()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (make_foreign, "no table of `logreceiver table`"),
        (drop_a_column, r"look at its columns \(level\)"),
        (need_newer_readers, "now needs readers of version 3"),
    ],
)
def test_a_table_that_is_not_ours_is_refused_and_left_as_it_is(
    tabled: Tabled, change: Callable[[str], None], message: str
) -> None:
    tabled.publish_some(2)
    lines = tabled.location.child("lines").root
    if change is not make_foreign:
        tabled.write()
    change(lines)
    version = DeltaTable(lines).version()

    with pytest.raises(ConfigurationError, match=message):
        tabled.write()

    assert DeltaTable(lines).version() == version


def test_columns_that_somebody_added_keep_their_values_when_files_are_merged(
    tabled: Tabled,
) -> None:
    tabled.publish_some(5)
    tabled.write()
    tabled.lines.alter.add_columns([Field("ticket", PrimitiveType("string"))])
    tabled.lines.update({"ticket": "'T-1'"}, predicate="host = 'web01'")
    tabled.publish_some(5)
    tabled.write()

    tabled.write(hours=30)

    tabled.has_each_line_once()
    assert len(tabled.lines.file_uris()) == 1
    assert tabled.rows("host, ticket", "ticket IS NOT NULL") == [("web01", "T-1")] * 3


def test_transactions_are_read_once_for_each_version(tmp_path: Path) -> None:
    log, other = (Log(Location(str(tmp_path)), LINES) for _ in range(2))
    log.refresh()
    log.append((), {"a": 7})
    known = log.transaction("a"), log.transaction("b")
    names = tmp_path / "_delta_log"

    names.rename(tmp_path / "moved")
    assert (log.transaction("a"), log.transaction("b")) == known == (7, None)
    (tmp_path / "moved").rename(names)

    log.append((), {"a": 8})
    assert (log.transaction("a"), log.transaction("b")) == (8, None)
    other.refresh()
    other.append((), {"b": 1})
    log.refresh()
    assert (log.transaction("a"), log.transaction("b")) == (8, 1)


async def test_a_writer_whose_table_is_removed_ends_and_the_next_one_writes_all(
    tabled: Tabled, connection: Connection
) -> None:
    await asyncio.to_thread(tabled.publish_some, 3)
    writer = make_writer(connection, tabled.url, tabled.location)
    await writer._work()
    shutil.rmtree(tabled.location.uri)
    await asyncio.to_thread(tabled.publish_some, 3)

    with pytest.raises(OperatorError, match="was removed or exchanged while it was written"):
        await writer.run_once(asyncio.Event())

    await asyncio.to_thread(tabled.write)
    await asyncio.to_thread(tabled.has_each_line_once)


async def test_a_writer_goes_on_from_a_copy_that_is_put_back_while_it_runs(
    tabled: Tabled, connection: Connection
) -> None:
    folder = Path(tabled.location.uri)
    writer = make_writer(connection, tabled.url, tabled.location, every=0.0)
    for number in range(3):
        await asyncio.to_thread(tabled.publish_some, 3)
        await writer._work()
        if not number:
            shutil.copytree(folder, folder.with_name("older"))
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("older"), folder)

    await writer.run_once(asyncio.Event())

    await asyncio.to_thread(tabled.has_each_line_once)


def test_messages_deleted_in_the_middle_are_rows_of_gaps_too(tabled: Tabled) -> None:
    tabled.publish(*(("logs.p0.web01", b"%d\n" % number, None) for number in range(9)))
    for sequence in (3, 4, 7, 9):
        api(tabled.url, "STREAM.MSG.DELETE.LOGS", {"seq": sequence, "no_erase": True})
    tabled.write()

    gaps = sorted((gap["first"], gap["until"], gap["kind"]) for gap in tabled.gaps())
    assert gaps == [(3, 5, "removed"), (7, 8, "removed"), (9, 10, "removed")]
    assert tabled.read_by_duckdb() == {("web01", ""): b"0\n1\n4\n5\n7\n"}


def test_lines_that_vanish_after_their_gaps_were_written_are_a_gap_as_well(
    tabled: Tabled, tmp_path: Path
) -> None:
    bad = {"Log-Agent": "1-1", "Log-Read-At": "x"}
    tabled.publish(("logs.p0.x", b"1\n", None), ("logs.p0.x", b"2", bad), ("logs.p0.x", b"3", None))
    kill_at("table_gaps", tabled, tmp_path)
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 3})
    tabled.write()

    gaps = sorted((gap["kind"], gap["first"], gap["until"]) for gap in tabled.gaps())
    assert gaps == [("removed", 1, 3), ("unreadable", 2, 3)]
    assert tabled.read_by_duckdb() == {("x", ""): b"3\n"}


def restore(url: str) -> str:
    """Replace the stream by its restored backup, up to 5; return when it was created before."""
    info = api(url, "STREAM.INFO.LOGS")
    api(url, "STREAM.DELETE.LOGS")
    known = {ANCESTRY: json.dumps([[info["created"], 6]])}
    api(url, "STREAM.CREATE.LOGS", info["config"] | {"metadata": known, "first_seq": 8})
    return str(info["created"])


def test_a_restored_stream_that_has_lost_its_beginning_is_a_gap_through_a_kill(
    tabled: Tabled, tmp_path: Path
) -> None:
    tabled.publish_some(3)
    tabled.write()
    restore(tabled.url)
    tabled.publish_some(3)
    kill_at("table_committed", tabled, tmp_path)
    tabled.write()

    [gap] = tabled.gaps()
    assert (gap["kind"], gap["first"], gap["until"]) == ("removed", 4, 8)
    tabled.has_each_line_once()


def test_a_restored_stream_that_has_lost_its_end_is_named_as_lines_may_be_there_twice(
    tabled: Tabled, caplog: pytest.LogCaptureFixture
) -> None:
    tabled.publish_some(9)
    tabled.write()
    before = restore(tabled.url)
    for _ in range(2):
        tabled.publish_some(1)
        tabled.write()

    gaps = sorted((gap["stream"], gap["first"], gap["until"]) for gap in tabled.gaps())
    after = api(tabled.url, "STREAM.INFO.LOGS")["created"]
    assert gaps == [(f"LOGS/{before}", 6, 10), (f"LOGS/{after}", 6, 8)]
    assert "sequences 6 to 9, removed: the stream was restored up to sequence 5" in caplog.text
    tabled.has_each_line_once()


@pytest.mark.parametrize(("grace", "kept"), [(1, 6), (0, 1)])
def test_readers_of_an_older_version_are_not_disturbed_within_their_grace(
    tabled: Tabled, grace: int, kept: int
) -> None:
    for number in range(5):
        tabled.publish_some(40, f"round {number}")
        tabled.write()
    version = tabled.lines
    rows = version.to_pyarrow_dataset()
    by_duckdb = duckdb.sql("SELECT count(*), count(DISTINCT line) FROM rows WHERE host = 'web01'")
    by_polars = polars.scan_delta(version).filter(polars.col("host") == "web01")

    tabled.write(hours=30, grace=timedelta(hours=grace))

    tabled.has_each_line_once()
    assert len([*Path(tabled.location.child("lines").root).rglob("*.parquet")]) == kept
    if grace:
        assert by_duckdb.fetchall() == [(120, 40)]
        assert by_polars.collect().height == 120
    del rows


def test_a_task_whose_disk_is_full_leaves_no_half_of_a_file(tabled: Tabled, tmp_path: Path) -> None:
    def write_half() -> None:
        with tabled.location.write("date=2026-11-20/x.parquet") as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_half()

    assert not [*Path(tabled.location.uri).rglob("*.parquet")]


@pytest.mark.parametrize(
    ("model", "command"), [(TableSettings, "table"), (SearchSettings, "search")]
)
def test_the_credential_of_a_receiver_has_to_be_of_all_partitions(
    tmp_path: Path, model: type[ProgramSettings], command: str
) -> None:
    path = tmp_path / "logreceiver.toml"
    server = 'server = ["nats://broker:4222"]\n'
    credential = f"{head_of('receiver central01')}\n"
    for content in ('partition = ["0", "3"]\n', f'{credential}partition = ["all"]\n'):
        path.write_text(content + server)
        assert load(model, {"table": "/t"}, path).server == ("nats://broker:4222",)

    path.write_text(f'{credential}partition = ["0", "3"]\n')
    with pytest.raises(ConfigurationError, match=f"0,3 alone, and logreceiver {command} reads all"):
        load(model, {"table": "/t"}, path)
    path.write_text(f'{credential}partition = ["x"]\n')
    with pytest.raises(ConfigurationError, match="partition: give numbers from 0, or all"):
        load(model, {"table": "/t"}, path)


@pytest.mark.parametrize("below", ["", "/logs"])
def test_a_file_in_the_way_of_the_folder_is_an_error_in_one_line(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    table = f"{tmp_path}/file{below}"

    ended = forks.run("logreceiver", "table", "--once", "--table", table)

    text = f"logreceiver: --table {table}: {tmp_path}/file is not a folder\n"
    assert (ended.returncode, ended.stderr) == (Exit.CONFIGURATION, text)


@pytest.mark.parametrize("name", ["a%20b", "a\\b", "a\tb"])
def test_a_folder_that_delta_rs_takes_for_another_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="rename the folder"):
        Location(str(tmp_path / name)).require_folder()


@pytest.mark.parametrize("name", ["a b", "[é]*?#%x"])
def test_folders_of_other_names_are_written(tabled: Tabled, name: str) -> None:
    tabled.location = Location(f"{tabled.location.uri}/{name}")
    tabled.location.require_folder()
    tabled.publish_some(2)
    tabled.write()

    assert [*Path(tabled.location.uri, "lines").rglob("*.parquet")]
    assert tabled.read_by_duckdb() == tabled.sent


def test_days_are_kept_whole() -> None:
    with pytest.raises(UsageError, match="whole days"):
        load(TableSettings, {"table": "/t", "keep": "90m"}, None)


async def test_a_writer_is_unhealthy_only_if_lines_wait_for_long_or_rounds_fail(
    connection: Connection,
) -> None:
    now = [1]
    meter = TableMeter(lambda: now[0] * SECOND, connection, every=600.0)
    meter.started = SECOND

    def health_after(seconds: int) -> tuple[int, str]:
        now[0] += seconds
        page = meter.health()
        return page.status, page.body.decode()

    meter.note_plan({"LOGS": 0})
    assert health_after(10_000)[0] == 200
    meter.note_plan({"LOGS": 7})
    assert health_after(800)[0] == 200, "lines gather for ten minutes"
    meter.note_plan({"LOGS": 9})
    assert health_after(200)[0] == 503
    meter.note_round(9, 99, 1.0)
    assert health_after(0)[0] == 200
    meter.note_trouble("no space")
    assert health_after(1000) == (503, "no space\n")


def test_a_merge_whose_commit_fails_does_not_end_the_writer(
    tabled: Tabled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        tabled.publish_some(2)
        tabled.write()
    points = list[str]()

    def fail(point: str) -> None:
        points.append(point)
        if point == "table_committed":
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log, "fault", fail)
    tabled.write(hours=30)

    assert points == ["table_committed", *2 * ["table_vacuumed"]], "the vacuum was due as well"
    tabled.has_each_line_once()


def test_gaps_are_merged_as_lines_are(tabled: Tabled) -> None:
    bad = {"Log-Agent": "1-1", "Log-Read-At": "x"}
    for number in range(4):
        tabled.publish(("logs.p0.bad", b"%d" % number, bad))
        tabled.write()
    child = tabled.location.child("gaps").root
    assert len(DeltaTable(child).file_uris()) == 4

    tabled.write(hours=30)
    assert len(DeltaTable(child).file_uris()) == 1
    assert sorted(gap["payload"] for gap in tabled.gaps()) == [b"0", b"1", b"2", b"3"]


def add_rows_of_another_program(lines: str) -> None:
    rows = DeltaTable(lines).to_pyarrow_table()
    strange = rows.slice(0, 1).set_column(0, "date", pa.array([None], pa.date32()))
    no_host = rows.slice(0, 2).set_column(2, "host", pa.nulls(2, pa.string()))
    for one in (strange, no_host):
        write_deltalake(lines, one, mode="append")


def test_rows_that_another_program_adds_are_kept_and_merged(tabled: Tabled) -> None:
    tabled.publish_some(4)
    tabled.write()
    add_rows_of_another_program(tabled.lines.table_uri)
    tabled.publish_some(4)
    tabled.write()
    tabled.write(hours=30)

    assert len(tabled.lines.file_uris()) == 2, "those with a date are one"
    assert len(tabled.rows("host", "host IS NULL")) == 2
    assert len(tabled.rows("host", "date IS NULL")) == 1
    assert len(tabled.rows()) == 27


def test_a_folder_in_the_log_as_trino_makes_it_is_left_alone(
    tabled: Tabled, tmp_path: Path
) -> None:
    tabled.publish_some(4)
    tabled.write()
    (folder := tmp_path / "table" / "lines" / "_delta_log" / "_trino_meta").mkdir()
    (folder / "extended_stats.json").write_text("{}")
    tabled.publish_some(4)
    tabled.write()

    assert len(tabled.rows()) == 24
    assert (folder / "extended_stats.json").exists()


def test_a_file_that_is_gone_keeps_no_others_from_being_written_and_merged(
    tabled: Tabled, caplog: pytest.LogCaptureFixture
) -> None:
    tabled.publish_some(2)
    tabled.write()
    tabled.publish_some(2)
    tabled.write()
    Path(tabled.lines.file_uris()[0].removeprefix("file://")).unlink()
    tabled.publish_some(2)

    tabled.write(hours=30)

    assert "3 files of" in caplog.text
    assert "cannot be merged: FileNotFoundError" in caplog.text
    progress = tabled.progress()
    assert progress
    assert progress.streams["LOGS"].next == 7


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x" * 999)])
def test_lines_are_written_on_though_a_file_of_gaps_is_damaged_or_gone(
    tabled: Tabled, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
) -> None:
    tabled.publish_some(4)
    api(tabled.url, "STREAM.MSG.DELETE.LOGS", {"seq": 3, "no_erase": True})
    tabled.write()
    [gap] = Path(tabled.location.child("gaps").root).rglob("*.parquet")
    damage(gap)
    config = api(tabled.url, "STREAM.INFO.LOGS")["config"]
    api(tabled.url, "STREAM.DELETE.LOGS")
    api(tabled.url, "STREAM.CREATE.LOGS", config)
    tabled.publish_some(2)
    tabled.write()
    tabled.publish_some(2)
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 4})
    tabled.write()

    assert [row[0] for row in tabled.rows("sequence", "pos = 0")] == [1, 2, 4, 1, 2, 4]
    assert gap.name in caplog.text


def test_gaps_that_cannot_be_written_are_one_plain_error(tabled: Tabled) -> None:
    tabled.publish_some(2)
    tabled.write()
    tabled.publish_some(2)
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 4})
    today = datetime.now(UTC).date()  # noqa: TID251 - that of the gap
    for day in (today, today + timedelta(days=1)):
        Path(tabled.location.child("gaps").root, f"date={day}").touch()

    with pytest.raises(OperatorError, match="File exists"):
        tabled.write()


@pytest.mark.parametrize("is_known", [True, False])
def test_files_that_another_program_has_changed_are_not_exchanged(
    tabled: Tabled, is_known: bool
) -> None:
    for _ in range(2):
        tabled.publish_some(3)
        tabled.write()
    log = Log(tabled.location.child("lines"), LINES)
    log.refresh()
    old = log.files()
    _, merged = merge_files(Group(tuple(old), log.location, log.form))
    assert isinstance(merged, File)
    tabled.lines.delete("host = 'web01'")
    if is_known:
        log.refresh()

    with pytest.raises(Overtaken):
        log.exchange(old, [merged])
    assert ("web01",) not in tabled.rows("host")


async def test_a_round_that_fails_is_tried_again_soon_and_named_once(
    tabled: Tabled, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    writer = make_writer(connection, tabled.url, tabled.location, every=0.2)
    run_tasks, tries = writer.run_tasks, 0

    def fail_twice(ranges: Sequence[Range]) -> Iterable[Written]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise JobFailed("no executor")
        stop.set()
        return run_tasks(ranges)

    writer.run_tasks, stop = fail_twice, asyncio.Event()
    await asyncio.to_thread(tabled.publish_some, 3)
    caplog.set_level("INFO")
    await writer.run(stop)

    await asyncio.to_thread(tabled.has_each_line_once)
    texts = [one.message for one in caplog.records]
    assert sum("no executor; tries again" in text for text in texts) == 1
    assert sum("written again" in text for text in texts) == 1


async def test_an_idle_writer_commits_nothing(tabled: Tabled, connection: Connection) -> None:
    await asyncio.to_thread(tabled.publish_some, 3)
    await asyncio.to_thread(tabled.write)
    version, writer = tabled.lines.version(), make_writer(connection, tabled.url, tabled.location)
    polls, stop = 0, asyncio.Event()

    def now() -> datetime:  # the maintenance asks for it at its first poll only
        nonlocal polls
        polls += 1
        return datetime.now(UTC)  # noqa: TID251 - the default

    writer.maintenance.clock = now
    running = asyncio.create_task(writer.run(stop))
    await asyncio.sleep(2.0)  # ten polls and more
    stop.set()
    await running

    assert polls
    assert tabled.lines.version() == version


@pytest.mark.parametrize("command", ["search --host web01 --since 1d", "table --forget"])
def test_an_object_store_that_cannot_be_read_is_one_plain_line(logs_url: str, command: str) -> None:
    given = {"max_retries": "0", "aws_endpoint": "http://127.0.0.1:1", "aws_allow_http": "true"}
    given |= {"aws_region": "x", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    options = [part for pair in given.items() for part in ("--storage-option", "=".join(pair))]

    options += ["--table", "s3://bucket/logs", "--server", logs_url]
    ended = forks.run("logreceiver", *command.split(), *options)

    assert ended.returncode == Exit.FAILED
    assert (ended.stderr.count("\n"), "\x1b" in ended.stderr) == (1, False), ended.stderr
    for part in ("Generic S3 error: Error performing GET", "keys of the object store"):
        assert part in ended.stderr
