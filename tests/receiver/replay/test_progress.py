"""What Spark's tasks share of the hosts, and how far they are: a bar on a terminal, now and then a line in a log."""

import io
import logging
import os
from pathlib import Path

import pytest

from receiver.replay.progress import Progress, bar
from receiver.replay.tasks import Unit, cut_evenly, reach, reached

UNIT = Unit(0, 1, 101)


@pytest.mark.parametrize(("partitions", "cores"), [((0,), 1), ((0,), 4), ((0, 1, 2), 4), ((5,), 3)])
def test_every_host_is_in_one_unit_alone(partitions: tuple[int, ...], cores: int) -> None:
    units = cut_evenly(partitions, 1, 100, cores)

    assert len(units) >= cores
    for partition in partitions:
        mine = [unit for unit in units if unit.partition == partition]
        for number in range(50):
            assert sum(unit.has(f"web{number:02}") for unit in mine) == 1


def test_units_tell_how_far_they_are(tmp_path: Path) -> None:
    reach(tmp_path, UNIT, 51)
    reach(tmp_path, UNIT, 26)

    assert reached(tmp_path, [UNIT]) == 0.25
    assert reached(tmp_path, [UNIT, Unit(1, 1, 101)]) == 0.125
    assert reached(tmp_path / "of another machine", [UNIT]) == 0.0


def test_progress_is_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / UNIT.name).symlink_to("victim")

    reach(tmp_path, UNIT, 26)

    assert (tmp_path / "victim").read_text() == "precious"


def test_progress_is_not_waited_for_where_it_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / UNIT.name)

    reach(tmp_path, UNIT, 26)

    assert reached(tmp_path, [UNIT]) == 0.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_says_what_is_done_and_how_long_the_rest_takes() -> None:
    assert bar(0.5, 60) == f"[{'#' * 15}{'.' * 15}] 50%, 1m to go"
    assert bar(0.0, 60).endswith("] 0%")


def test_a_terminal_has_a_bar_that_is_gone_afterwards() -> None:
    terminal, clock = Terminal(), iter(range(0, 1000, 10))

    with Progress(terminal, lambda: next(clock)) as progress:
        progress.show(0.25)

    assert "25%, 30s to go" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_log_has_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    stream, clock = io.StringIO(), iter([0, 4, 11, 12, 22])

    with caplog.at_level(logging.INFO), Progress(stream, lambda: next(clock)) as progress:
        for part in (0.1, 0.2, 0.3, 0.4):
            progress.show(part)

    assert (len(caplog.messages), stream.getvalue()) == (2, "")
    assert caplog.messages[-1].startswith("40%")
