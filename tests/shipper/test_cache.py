"""The positions file survives crashes, and never stops an agent by being damaged."""

import logging
from pathlib import Path

import pytest

from broker.block import Identity, Origin, Span
from broker.exits import ConfigurationError
from shipper.cache import Cache
from shipper.positions import Positions

ORIGIN = Origin("1-aaaaaaaa", "/a", Span("f", 0, 9), Identity(1, 0, "", 0, ""), 1, 1)
POSITIONS = Positions().advance([ORIGIN], 3)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_what_was_saved_is_loaded_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "web01"
    cache = Cache(folder)
    assert cache.load() == Positions()

    cache.save(POSITIONS)

    assert Cache(folder).load() == POSITIONS
    assert names(folder) == ["positions.json"]


def test_unchanged_positions_are_not_written_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.save(POSITIONS)
    (tmp_path / "positions.json").unlink()

    cache.save(POSITIONS)

    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"version": 0, "files": {}}'], ids=["empty", "torn", "older"]
)
def test_a_damaged_file_is_set_aside_with_one_line(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "positions.json").write_bytes(data)

    with caplog.at_level(logging.WARNING):
        loaded = Cache(tmp_path).load()

    assert loaded == Positions()
    assert (tmp_path / "positions.json.damaged").read_bytes() == data
    assert len(caplog.messages) == 1


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path: Path) -> None:
    Cache(tmp_path).save(POSITIONS)
    (tmp_path / "positions.json.99999.tmp").write_bytes(b"{")

    assert Cache(tmp_path).load() == POSITIONS
    assert names(tmp_path) == ["positions.json"]


def test_a_state_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="--state-dir"):
        Cache(tmp_path / "file" / "web01").load()
