"""Files of days that are over, and segments in folders: kept by host, compressed, removed with the folders they leave empty."""

from dataclasses import replace
from pathlib import Path

import pytest

from receiver.storage.layout import Layout
from receiver.storage.retention import Limits, Order, Retention
from receiver.storage.store import SegmentRow
from tests.receiver import stored

NOW = 1_800_000_000_000_000_000
DAY = 86_400_000_000_000
DAYS = ("2026-11-18", "2026-11-19", "2026-11-20", "2026-11-21")
LAYOUT = "{host}/{date}.log"


@pytest.fixture
def order(tmp_path: Path) -> Order:
    for name in ("out", "state"):
        (tmp_path / name).mkdir(parents=True)
    made = Order(tmp_path / "out", tmp_path / "state", "none", Limits(), Layout(LAYOUT))
    for number, day in enumerate(DAYS):
        for host in ("web01", "web02"):
            add(made, f"{host}/{day}.log", NOW - (len(DAYS) - number) * DAY)
    return made


def add(
    order: Order, path: str, moment: int = NOW, data: bytes = b"x" * 100, batch: int = 1
) -> None:
    """Have a file there; of a day that is over it is a closed segment."""
    (order.output / path).parent.mkdir(parents=True, exist_ok=True)
    (order.output / path).write_bytes(data)
    stored.add(order.state, order.output, path, moment=moment, layout=LAYOUT)
    day = order.layout.parse(path).day
    if day and day < DAYS[-1]:
        with stored.begun(order.state, order.output) as store, store.transaction():
            row = (path, path, 1, day, len(data), moment, "", "", batch)
            store.put_segments([SegmentRow(*row)])


def tidied(order: Order, **limits: int) -> list[str]:
    Retention(replace(order, limits=Limits(**limits)), lambda: NOW).tidy(lambda: False)
    found = (path.relative_to(order.output) for path in order.output.rglob("*"))
    return sorted(str(p) for p in found if not p.parts[0].startswith("."))


def files(hosts: tuple[str, ...] = ("web01", "web02"), days: tuple[str, ...] = DAYS) -> list[str]:
    return sorted([*hosts, *(f"{host}/{day}.log" for host in hosts for day in days)])


def test_days_are_removed_by_age_and_by_bytes_in_all(order: Order) -> None:
    assert tidied(order, age=2 * DAY + 1) == files(days=DAYS[1:])
    assert tidied(order, size=200) == files(days=DAYS[2:])


def test_a_folder_that_nothing_is_left_in_goes_and_another_stays(order: Order) -> None:
    add(order, "away/2026-11-01.log", NOW - 20 * DAY)
    add(order, "strange/2026-11-01.log", NOW - 20 * DAY)
    (order.output / "strange/notes.txt").write_bytes(b"mine\n")

    left = tidied(order, age=10 * DAY)

    assert left == sorted([*files(), "strange", "strange/notes.txt"])
