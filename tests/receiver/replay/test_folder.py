"""Which folders a replay takes."""

import json
import os
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from receiver.replay.files import finish, prepare
from receiver.storage.folders import walk


def seen(output: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in output.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.mark.parametrize("name", [".logreceiver", ".place", "web01.log", "notes.txt"])
def test_a_folder_that_holds_anything_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"theirs\n")

    with pytest.raises(ConfigurationError, match=r"--output|of its own"):
        prepare(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_says_whether_its_replay_is_done(tmp_path: Path) -> None:
    prepare(tmp_path / "out")
    before = json.loads((tmp_path / "out/.replay.json").read_text())
    finish(tmp_path / "out", {"lines": 1})

    assert before["state"] == "under way"
    assert json.loads((tmp_path / "out/.replay.json").read_text()) == {
        "version": 1,
        "state": "done",
        "lines": 1,
    }


def test_a_mark_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".replay.json")

    with pytest.raises(OSError, match="no regular file"):
        prepare(tmp_path)


def test_an_unfinished_replay_is_begun_anew_and_what_it_had_written_goes(tmp_path: Path) -> None:
    prepare(tmp_path)
    for name in ("web01.log", "web01.log.000001", "web01.log.000002.zst", ".web01.log.000003.new"):
        (tmp_path / name).write_bytes(b"half\n")

    prepare(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [".replay.json"]


def test_a_strangers_file_beside_an_unfinished_replay_is_not_removed(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"mine\n")

    with pytest.raises(ConfigurationError, match=r"notes\.txt"):
        prepare(tmp_path)

    assert seen(tmp_path) == {"notes.txt": b"mine\n"}


def test_a_finished_replay_is_never_written_over(tmp_path: Path) -> None:
    prepare(tmp_path)
    finish(tmp_path, {})

    with pytest.raises(ConfigurationError, match="finished replay"):
        prepare(tmp_path)


def test_an_unfinished_replay_into_folders_is_begun_anew(tmp_path: Path) -> None:
    prepare(tmp_path, "{date}/{host}.log")
    for name in ("2026-11-20/web01.log", "2026-11-21/web01.log.000001", "2026-11-21/web01.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half\n")

    prepare(tmp_path, "{date}/{host}.log")

    assert list(walk(tmp_path)) == []
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").write_bytes(b"mine\n")
    with pytest.raises(ConfigurationError, match="notes"):
        prepare(tmp_path)
