"""A table whose broker was restored from an older backup: what is there twice, and what is not."""

from pathlib import Path

import pytest

from receiver.table.location import Location
from tests.receiver.table.tabled import Tabled
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
