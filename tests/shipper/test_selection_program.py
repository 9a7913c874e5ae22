"""The settings of a selection in the real program: what is followed, and where it begins, also in the next run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shipper.logs import Ship

pytestmark = pytest.mark.nats


def test_a_run_goes_on_where_one_before_began_at_the_end_and_shipped_nothing(
    logs_url: str, ship: Ship, tmp_path: Path, read_back: Callable[[str], bytes]
) -> None:
    def ship_once() -> None:
        options = ["--file", tmp_path / "logs/**/*.log", "--exclude", tmp_path / "logs/debug.log"]
        options += ["--from", "end", "--ignore-older", "1d", "--once"]
        assert ship(logs_url, *options).wait(90) == 0

    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("app.log", "debug.log"):
        (logs / name).write_bytes(b"old\nhalf")

    ship_once()
    for name in ("app.log", "debug.log"):
        with (logs / name).open("ab") as file:
            file.write(b" and half\n")
    ship_once()
    ship_once()

    assert read_back(logs_url) == b"half and half\n"
