"""A table whose broker was restored from an older backup: what is there twice, and what is not."""

import asyncio
import shutil
from pathlib import Path

import pytest

from nats_logship.client.connection import Connection
from receiver.table.location import Location
from receiver.table.writer import TableWriter
from tests.conftest import Server
from tests.receiver.table.tabled import Tabled, make_writer
from tests.support.suite import Suite

pytestmark = [pytest.mark.nats, pytest.mark.journey]


def numbered(first: int, until: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, until))


def test_gaps_names_the_first_copy_of_lines_that_are_shipped_again_and_nothing_is_deleted(
    suite: Suite, tmp_path: Path
) -> None:
    def ship(host: str, first: int, until: int) -> None:
        with (suite.folder / f"{host}.log").open("a") as log:
            log.write(numbered(first, until))
        shipper = suite.start_shipper(host, [suite.folder / f"{host}.log"], "--once")
        assert shipper.wait(60) == 0, shipper.last_output()

    suite.start_broker()
    tabled = Tabled(suite.url, Location(str(tmp_path / "table")))
    for first, until in ((0, 5), (5, 10)):
        for host in ("remains", "gone"):
            ship(host, first, until)
        if not first:
            suite.administer("backup", str(tmp_path / "backup"))
    tabled.write()
    suite.administer("restore", str(tmp_path / "backup"), "--replace", "--yes")
    ship("remains", 10, 15)
    tabled.write()

    [gap] = tabled.gaps()
    assert "was restored up to sequence" in gap["reason"]
    is_first_copy = f"stream = '{gap['stream']}' AND sequence >= {gap['first']}"

    def read(where: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for host, line in tabled.rows("host, line", where):
            found.setdefault(host, []).append(line)
        return found

    before, again = numbered(0, 5).splitlines(), numbered(5, 10).splitlines()
    assert read(f"{is_first_copy} AND sequence < {gap['until']}") == {
        "remains": again,
        "gone": again,
    }
    assert read(f"NOT ({is_first_copy})") == {
        "remains": [*before, *again, *numbered(10, 15).splitlines()],
        "gone": before,
    }


@pytest.mark.parametrize("is_new_writer", [True, False])
@pytest.mark.parametrize("is_last_readable", [True, False])
async def test_a_stream_that_grew_again_after_it_lost_its_end_is_written_from_there(
    own_broker: Server,
    tmp_path: Path,
    is_new_writer: bool,
    is_last_readable: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def put(source: Path, target: Path) -> None:
        own_broker.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        own_broker.start()

    async def write() -> None:
        if is_new_writer or not writers:
            connection = Connection([own_broker.url], "tests")
            writers.append(make_writer(connection, own_broker.url, tabled.location, every=0.0))
        for _ in range(3):  # polls
            await writers[-1]._work()

    store, backup = tmp_path / "own-server" / "store", tmp_path / "backup"
    tabled = Tabled(own_broker.url, Location(str(tmp_path / "table")))
    writers = list[TableWriter]()
    await asyncio.to_thread(tabled.publish_some, 3, "before")
    await write()
    await asyncio.to_thread(put, store, backup)
    await asyncio.to_thread(tabled.publish_some, 3, "lost")
    if not is_last_readable:
        await asyncio.to_thread(tabled.publish, ("logs.p0.x", b"x", {"Log-Agent": "1-1"}))
    await write()
    await asyncio.to_thread(put, backup, store)
    await asyncio.to_thread(tabled.publish_some, 6, "again")
    await write()
    for writer in writers:
        await writer.connection.close()

    written = sorted(line for (line,) in await asyncio.to_thread(tabled.rows, "line"))
    assert written == sorted(b"".join(tabled.sent.values()).decode().splitlines())
    [gap] = [one for one in await asyncio.to_thread(tabled.gaps) if one["kind"] == "removed"]
    assert (gap["first"], gap["until"]) == (4, 7 if is_last_readable else 8)
    assert "it lost its end" in caplog.text


@pytest.mark.parametrize("is_new_writer", [True, False])
async def test_a_lost_end_is_written_again_once_though_its_last_messages_have_no_lines(
    own_broker: Server, tmp_path: Path, is_new_writer: bool
) -> None:
    def put(source: Path, target: Path) -> None:
        own_broker.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        own_broker.start()

    async def write() -> None:
        if is_new_writer or not writers:
            connection = Connection([own_broker.url], "tests")
            writers.append(make_writer(connection, own_broker.url, tabled.location, every=0.0))
        await writers[-1]._work()

    store, backup = tmp_path / "own-server" / "store", tmp_path / "backup"
    tabled = Tabled(own_broker.url, Location(str(tmp_path / "table")))
    writers = list[TableWriter]()
    await asyncio.to_thread(tabled.publish_some, 3, "before")
    await write()
    await asyncio.to_thread(put, store, backup)
    await asyncio.to_thread(tabled.publish_some, 3, "lost")
    await write()
    await asyncio.to_thread(put, backup, store)
    await asyncio.to_thread(tabled.publish_some, 2, "again")
    for _ in range(2):
        await asyncio.to_thread(tabled.publish, ("logs.p0.x", b"x", {"Log-Agent": "1-1"}))
    for _ in range(4):
        await write()
    for writer in writers:
        await writer.connection.close()

    written = sorted(line for (line,) in await asyncio.to_thread(tabled.rows, "line"))
    assert written == sorted(b"".join(tabled.sent.values()).decode().splitlines())
    assert len([1 for one in await asyncio.to_thread(tabled.gaps) if one["kind"] == "removed"]) == 1
