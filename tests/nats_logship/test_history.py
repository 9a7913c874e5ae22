"""Lines of a table are found again: in order, around a line, counted, and within limits."""

from fractions import Fraction
from pathlib import Path

import pytest

from nats_logship.history import History, Order, Query, SearchLimits
from receiver.table.columns import SCHEMA, SectionLines, make_rows
from receiver.table.location import Location
from receiver.table.log import Log
from receiver.table.write import STATISTICS, write_tables

SECOND = 10**9
BEGAN = 1_795_000_000 * SECOND  # 2026-11-18 11:06:40 UTC
STREAM = "LOGS/2026-11-18T00:00:00Z"


class Written:
    """A table that is written file by file, without a broker."""

    def __init__(self, folder: Path) -> None:
        self.address, self.stream, self._next = str(folder), STREAM, 1
        self._location = Location(str(folder)).child("lines")
        self._log = Log(self._location, "lines", SCHEMA, ("date",), STATISTICS)
        self._log.refresh()

    def add(self, *parts: tuple[str, str, int | Fraction, bytes], records: str = "") -> None:
        """Commit a file: messages by host, file, seconds after `BEGAN`, and lines."""
        made = []
        for host, file, seconds, lines in parts:
            stored_at = int(BEGAN + seconds * SECOND)
            made.append(SectionLines(host, file, self._next, stored_at, 0, lines, records))
            self._next += 1
        made.sort(key=lambda part: part.host)
        file = write_tables(iter([make_rows(made, self.stream)]), "2026-11-18", self._location)
        self._log.append([file], {f"logship/{self.stream}": self._next})

    def open(self, **limits: float) -> History:
        return History.open(self.address, limits=SearchLimits(**limits))

    def find(
        self, query: Query = Query(), limit: int | None = None, order: Order = Order.OLDEST
    ) -> list[bytes]:
        with self.open() as history:
            return [one.line for one in history.find(query, limit, order)]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "table")


def numbered(host: str, seconds: int, *numbers: int) -> tuple[str, str, int, bytes]:
    return (
        host,
        "/var/log/app.log",
        seconds,
        b"".join(b"%s %d\n" % (host.encode(), n) for n in numbers),
    )


@pytest.mark.parametrize("limit", [None, 5, 100])
def test_lines_come_in_the_order_of_storage_from_files_that_overlap(
    written: Written, limit: int | None
) -> None:
    written.add(numbered("web02", 1, 1, 2), numbered("web01", 5, 9))
    written.add(numbered("web01", 3, 5, 6), numbered("web01", 4, 7))
    written.add(numbered("web03", 2, 3, 4), numbered("web02", 9, 10))

    found = written.find(limit=limit)
    assert (
        found
        == [
            b"web02 1",
            b"web02 2",
            b"web03 3",
            b"web03 4",
            b"web01 5",
            b"web01 6",
            b"web01 7",
            b"web01 9",
            b"web02 10",
        ][:limit]
    )
    assert written.find(limit=limit, order=Order.NEWEST) == written.find()[::-1][:limit]
