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


class Loser:
    """A broker that loses the end of its stream, and a table with its writers."""

    def __init__(self, broker: Server, folder: Path, *, is_new_writer: bool) -> None:
        self._broker, self._is_new = broker, is_new_writer
        self._store, self._backup = folder / "own-server" / "store", folder / "backup"
        self.tabled = Tabled(broker.url, Location(str(folder / "table")))
        self._writers = list[TableWriter]()

    async def publish(self, number: int, text: str, unreadable: int = 0) -> None:
        await asyncio.to_thread(self.tabled.publish_some, number, text)
        for _ in range(unreadable):
            what = "logs.p0.x", b"x", {"Log-Agent": "1-1"}
            await asyncio.to_thread(self.tabled.publish, what)

    async def write(self, polls: int = 1) -> None:
        """Let the writer, or a new one, ask the broker so many times."""
        if self._is_new or not self._writers:
            connection = Connection([self._broker.url], "tests")
            writer = make_writer(connection, self._broker.url, self.tabled.location, every=0.0)
            self._writers.append(writer)
        for _ in range(polls):
            await self._writers[-1]._work()

    async def back_up(self) -> None:
        await asyncio.to_thread(self._put, self._store, self._backup)

    async def lose(self) -> None:
        await asyncio.to_thread(self._put, self._backup, self._store)

    def _put(self, source: Path, target: Path) -> None:
        self._broker.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        self._broker.start()

    async def read(self) -> tuple[list[str], list[tuple[int, int]]]:
        """Close all; return all lines in order, and the sequences that `gaps` calls removed."""
        for writer in self._writers:
            await writer.connection.close()
        lines = await asyncio.to_thread(self.tabled.rows, "line")
        gaps = await asyncio.to_thread(self.tabled.gaps)
        removed = [(one["first"], one["until"]) for one in gaps if one["kind"] == "removed"]
        return sorted(line for (line,) in lines), removed

    def sent(self) -> list[str]:
        return sorted(b"".join(self.tabled.sent.values()).decode().splitlines())


@pytest.mark.parametrize("is_new_writer", [True, False])
@pytest.mark.parametrize("is_last_readable", [True, False])
async def test_a_stream_that_grew_again_after_it_lost_its_end_is_written_from_there(
    own_broker: Server,
    tmp_path: Path,
    is_new_writer: bool,
    is_last_readable: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loser = Loser(own_broker, tmp_path, is_new_writer=is_new_writer)
    await loser.publish(3, "before")
    await loser.write(3)
    await loser.back_up()
    await loser.publish(3, "lost", unreadable=not is_last_readable)
    await loser.write(3)
    await loser.lose()
    await loser.publish(6, "again")
    await loser.write(3)

    until = 7 if is_last_readable else 8
    assert await loser.read() == (loser.sent(), [(4, until)])
    assert "it lost its end" in caplog.text


@pytest.mark.parametrize("is_new_writer", [True, False])
async def test_a_lost_end_is_written_again_once_though_its_last_messages_have_no_lines(
    own_broker: Server, tmp_path: Path, is_new_writer: bool
) -> None:
    loser = Loser(own_broker, tmp_path, is_new_writer=is_new_writer)
    await loser.publish(3, "before")
    await loser.write()
    await loser.back_up()
    await loser.publish(3, "lost")
    await loser.write()
    await loser.lose()
    await loser.publish(2, "again", unreadable=2)
    for _ in range(4):
        await loser.write()

    assert await loser.read() == (loser.sent(), [(4, 7)])
