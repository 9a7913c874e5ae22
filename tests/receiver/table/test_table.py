"""Tables: every line once, byte for byte, through kills, other writers, and changed streams."""

import asyncio
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nats_logship.app.exits import ConfigurationError, FencedError, OperatorError
from nats_logship.app.faults import VARIABLE
from nats_logship.client.connection import Connection
from receiver.table.claim import forget
from receiver.table.location import Location
from receiver.table.log import Overtaken
from tests import secured
from tests.receiver.partition import Partition, api, publish
from tests.receiver.points import IN_TABLE
from tests.receiver.table.tabled import Tabled, make_writer, present, write_once
from tests.support.processes import Processes
from tests.support.suite import ask

pytestmark = pytest.mark.nats


def test_both_engines_read_every_byte_of_all_kinds_of_messages(tabled: Tabled) -> None:
    latin = "Grüße\r\n\n".encode("latin-1")
    tabled.publish(
        tabled.ship("web01", "a", b"2026-11-20T10:00:00Z ERROR\ntwo\r\n" + latin, compressed=True),
        tabled.ship("web02", "b", b"x" * 70_000),
        tabled.ship("web02", "b", b"y" * 5 + b"\nnext\n"),
        ("logs.p0.plain", b"of another client\n", None),
    )
    tabled.sent["plain", ""] = b"of another client\n"
    meter = tabled.write()

    tabled.has_each_line_once()
    assert tabled.rows("line", "level = 'error' AND ts > '2020-01-01' AND raw IS NULL")
    assert tabled.rows("host, piece", "piece") == [("web02", True)]
    assert (meter.rows, tabled.gaps()) == (8, [])


def test_a_second_run_goes_on_where_the_first_one_ended(tabled: Tabled) -> None:
    tabled.publish_some(12)
    tabled.write(commit_bytes=600)
    tabled.publish_some(3, "later")
    tabled.write()
    tabled.write()

    tabled.has_each_line_once()
    progress = tabled.progress()
    assert progress
    assert (progress.streams["LOGS"].next, progress.rows, progress.released) == (16, 45, True)
    assert progress.files == len(tabled.lines.file_uris()) > 1


def test_lines_are_there_once_however_often_the_writer_is_killed(
    tabled: Tabled, tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    bad = {"Log-Agent": "1-1", "Log-Read-At": "x"}
    with Processes(tmp_path) as processes:
        for number, point in enumerate(IN_TABLE):
            tabled.publish_some(7, point)
            tabled.publish(("logs.p1.bad", b"unreadable", bad))
            (faults / point).touch()
            command = [sys.executable, "-m", "tests.receiver.table.tabled"]
            words = [tabled.url, tabled.location.uri, "30"]
            once = processes.start(f"once{number}", [*command, *words], {VARIABLE: str(faults)})
            assert once.wait(120) == -9, (point, once.read_log())
            assert not [*faults.iterdir()], point

    tabled.write(hours=30)

    tabled.has_each_line_once()
    assert len(tabled.gaps()) == len(IN_TABLE)
    assert len(tabled.lines.file_uris()) <= 2, "the files of closed days are merged"


def test_a_full_disk_loses_and_repeats_nothing(tabled: Tabled, tmp_path: Path) -> None:
    tabled.publish_some(50)
    command = [sys.executable, "-m", "tests.receiver.table.tabled", tabled.url, tabled.location.uri]
    limited = ["bash", "-c", 'ulimit -f 1 && exec "$@"', "bash", *command, "0"]
    with Processes(tmp_path) as processes:
        once = processes.start("limited", limited, {"PYTHONDONTWRITEBYTECODE": "1"})
        assert once.wait(120) != 0
        assert "File too large" in once.read_log(), once.read_log()

    tabled.write()

    tabled.has_each_line_once()


async def test_a_second_writer_is_refused_while_the_first_one_lives(
    tabled: Tabled, connection: Connection
) -> None:
    presence = await present(connection)
    writer = make_writer(connection, tabled.url, tabled.location, presence=presence.address)
    stop = asyncio.Event()
    running = asyncio.create_task(writer.run(stop))
    while not writer.meter.started:  # noqa: ASYNC110 - a value of the writer
        await asyncio.sleep(0.05)

    with pytest.raises(ConfigurationError, match="is written by tests:1"):
        await write_once(tabled.url, tabled.location)
    with pytest.raises(ConfigurationError, match="stop that one first"):
        await forget(connection, writer.claim.table_id)
    await writer.claim.claim()  # an answer that was lost: it does not take itself for another one

    stop.set()
    await running


async def test_a_writer_that_was_taken_over_ends_and_writes_nothing_twice(
    tabled: Tabled, connection: Connection
) -> None:
    first = make_writer(connection, tabled.url, tabled.location)
    await asyncio.to_thread(tabled.publish_some, 5)
    plan = await first._plan()
    await first._begin(plan)
    await write_once(tabled.url, tabled.location)

    with pytest.raises(Overtaken):
        await first._round(plan)
    await asyncio.to_thread(tabled.publish_some, 5)
    with pytest.raises(FencedError, match="taken over by tests:1"):
        await first.run_once(asyncio.Event())

    await write_once(tabled.url, tabled.location)
    await asyncio.to_thread(tabled.has_each_line_once)


def test_a_restored_table_goes_on_from_its_own_transactions(tabled: Tabled, tmp_path: Path) -> None:
    tabled.publish_some(4)
    tabled.write()
    shutil.copytree(tabled.location.uri, tmp_path / "backup")
    tabled.publish_some(4)
    tabled.write()
    shutil.rmtree(tabled.location.uri)
    (tmp_path / "backup").rename(tabled.location.uri)

    tabled.write()

    tabled.has_each_line_once()


def test_a_stream_made_again_is_read_from_its_start(tabled: Tabled, tmp_path: Path) -> None:
    tabled.publish_some(9)
    tabled.write()
    Partition(tabled.url, tmp_path).make_stream_anew()
    before, tabled.sent = tabled.sent, {}
    tabled.publish_some(3)
    tabled.write()

    assert {one[0] for one in tabled.rows("DISTINCT stream", "sequence < 4")}
    after = {key: before[key] + tabled.sent.get(key, b"") for key in before}
    assert tabled.read_by_polars() == after


def test_removed_lines_are_a_row_of_gaps(tabled: Tabled, caplog: pytest.LogCaptureFixture) -> None:
    tabled.publish_some(2)
    tabled.write()
    kept = dict(tabled.sent)
    tabled.publish(("logs.p0.gone", b"1\n", None), ("logs.p0.gone", b"2\n", None))
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 5})
    tabled.publish(("logs.p0.plain", b"after\n", None))
    tabled.write()

    [gap] = tabled.gaps()
    assert (gap["kind"], gap["first"], gap["until"]) == ("removed", 3, 5)
    assert "sequences 3 to 4, removed" in caplog.text
    assert tabled.read_by_duckdb() == kept | {("plain", ""): b"after\n"}


def test_a_new_table_begins_at_a_time_and_keeps_its_beginning(tabled: Tabled) -> None:
    tabled.publish_some(3)
    tabled.sent = {}
    later = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251 - by the broker's clock
    tabled.write(since=later)
    tabled.publish_some(2)
    tabled.write()

    assert len(tabled.rows()) == 6


def test_files_are_merged_by_host_and_open_readers_are_not_disturbed(tabled: Tabled) -> None:
    for number in range(6):
        tabled.publish_some(5, f"round {number}")
        tabled.write()
    reader = tabled.lines.to_pyarrow_dataset()
    assert len(tabled.lines.file_uris()) == 6

    tabled.write(hours=30)

    tabled.has_each_line_once()
    assert len(tabled.lines.file_uris()) == 1
    hosts = tabled.lines.to_pyarrow_table(columns=["host"])["host"].to_pylist()
    assert hosts == sorted(hosts)
    assert reader.count_rows() == len(hosts) == 90


def test_a_writer_whose_clock_is_ahead_removes_no_line(tabled: Tabled) -> None:
    tabled.publish_some(5)
    tabled.write()

    tabled.write(hours=24 * 400, keep=timedelta(days=5))

    tabled.has_each_line_once()


@pytest.mark.parametrize("is_checkpoint_lost", [False, True])
def test_what_a_power_loss_has_torn_in_the_log_is_dropped_and_written_again(
    tabled: Tabled, is_checkpoint_lost: bool
) -> None:
    tabled.publish_some(3)
    tabled.write()
    log = Path(tabled.location.uri, "lines", "_delta_log")
    tabled.lines.create_checkpoint()
    newest = max(log.glob("*.json"))
    [checkpoint] = log.glob("*.parquet")
    newest.write_bytes(b"\0" * 100)
    if is_checkpoint_lost:
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(b"")

    tabled.write()

    tabled.has_each_line_once()


def test_a_writer_says_at_its_end_how_many_lines_it_wrote(
    tabled: Tabled, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    tabled.publish_some(2)
    for _ in range(2):
        tabled.write()

    written = [text.partition(": ")[2] for text in caplog.messages if "wrote" in text]
    assert written[0].startswith("wrote 6 lines, ")
    assert written[1] == "wrote 0 lines, 0 B; nothing waits"


def test_a_forgotten_table_has_no_entry_and_ends_its_writer(tabled: Tabled) -> None:
    tabled.publish_some(1)
    tabled.write()
    table_id = str(tabled.lines.metadata().id)

    assert ask(tabled.url, lambda c: forget(c, table_id))
    assert not ask(tabled.url, lambda c: forget(c, table_id))
    assert tabled.progress() is None


@pytest.mark.filterwarnings("ignore")
def test_a_table_in_an_object_store_is_written_and_merged_too(tabled: Tabled, s3: Location) -> None:
    tabled.location = s3
    for _ in range(2):
        tabled.publish_some(5)
        tabled.write()
    tabled.write(hours=30)

    tabled.has_each_line_once()
    assert len(tabled.lines.file_uris()) == 1


def test_the_rights_of_a_receiver_of_all_partitions_suffice(
    processes: Processes, tmp_path: Path
) -> None:
    server = secured.start_secured(processes, tmp_path, secured.receiver("all"))
    tabled = Tabled(server.address, Location(str(tmp_path / "t")), access=server.access("all"))
    payloads = [b"", b"1\n", b"", b"2\n", b""]  # empty messages are dangerous across accounts
    publish(server.url(), *(("logs.p0.web01", data, None) for data in payloads))

    tabled.write()

    assert tabled.read_by_polars() == {("web01", ""): b"1\n2\n"}
    assert "Violation" not in server.read_log()


def test_without_a_broker_that_is_set_up_it_says_what_is_wrong(tabled: Tabled) -> None:
    api(tabled.url, "STREAM.DELETE.LOGS")
    with pytest.raises(OperatorError, match="stream not found"):
        tabled.write()


def test_a_folder_that_cannot_be_a_table_is_named(tabled: Tabled, tmp_path: Path) -> None:
    Path(tabled.location.uri).write_text("a file")
    with pytest.raises(OperatorError, match=str(tmp_path)):
        tabled.write()
