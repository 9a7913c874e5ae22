"""Where the positions go when nobody says."""

from pathlib import Path

from shipper.settings import default_state_dir


def test_the_folder_of_systemd_wins(tmp_path: Path) -> None:
    assert default_state_dir({"STATE_DIRECTORY": "/a:/b"}, tmp_path) == Path("/a")


def test_a_shared_folder_that_can_be_written_comes_before_the_home(tmp_path: Path) -> None:
    shared = tmp_path / "logshipper"

    assert default_state_dir({}, tmp_path / "home", shared) == shared


def test_without_any_the_home_is_taken(tmp_path: Path) -> None:
    shared = tmp_path / "missing/logshipper"

    assert default_state_dir({}, tmp_path, shared) == tmp_path / ".local/state/logship"
