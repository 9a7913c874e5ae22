"""Which folders a replay takes."""

import json
import os
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from receiver.replay.files import finish, prepare


@pytest.mark.parametrize("name", [".logreceiver", ".folder-id", "web01.log", "notes.txt"])
def test_a_folder_that_holds_anything_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"theirs\n")

    with pytest.raises(ConfigurationError, match=r"--output|of its own"):
        prepare(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_unfinished_replay_is_begun_anew_and_a_finished_one_never_written_over(
    tmp_path: Path,
) -> None:
    output = tmp_path / "out"
    prepare(output)
    for name in ("web01.log", "2026-11-20/web01.log.000002.zst", ".web01.log.000003.new"):
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).write_bytes(b"half\n")

    prepare(output)
    left = [path.name for path in output.iterdir()]
    finish(output, {"lines": 1})

    assert left == [".replay.json"]
    with pytest.raises(ConfigurationError, match="finished replay"):
        prepare(output)
    assert json.loads((output / ".replay.json").read_text()) == {
        **{"version": 1, "state": "done", "lines": 1}
    }


def test_a_mark_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".replay.json")

    with pytest.raises(OSError, match="no regular file"):
        prepare(tmp_path)
