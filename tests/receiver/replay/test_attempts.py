"""How far an attempt is, told in its folder: through no link, and nothing is waited for."""

import os
from pathlib import Path

from receiver.replay.attempts import attempt, reached
from receiver.replay.units import Unit

UNIT = Unit(0, 1, 101)


def test_an_attempt_tells_how_far_it_is(tmp_path: Path) -> None:
    with attempt(tmp_path, UNIT) as under_way:
        under_way.reach(26)

        assert reached(tmp_path, [UNIT]) == 0.25


def test_progress_is_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    with attempt(tmp_path, UNIT) as under_way:
        (under_way.folder / ".reached").unlink()
        (under_way.folder / ".reached").symlink_to(tmp_path / "victim")
        under_way.reach(26)

    assert (tmp_path / "victim").read_text() == "precious"


def test_progress_is_not_waited_for_where_it_is_a_pipe(tmp_path: Path) -> None:
    with attempt(tmp_path, UNIT) as under_way:
        (under_way.folder / ".reached").unlink()
        os.mkfifo(under_way.folder / ".reached")
        under_way.reach(26)

        assert reached(tmp_path, [UNIT]) == 1.0
