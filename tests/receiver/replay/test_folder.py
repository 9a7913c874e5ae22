"""Which folders a replay takes, and when files are to be seen in them."""

import json
import os
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, OperatorError
from receiver.replay.folder import finish, prepare, publish
from receiver.storage.folders import walk


def attempt(stage: Path, name: str, **files: bytes) -> Path:
    folder = stage / name
    folder.mkdir()
    for file, content in files.items():
        (folder / file.replace("__", ".")).write_bytes(content)
    return folder


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


def test_nothing_is_in_sight_before_all_is_written(tmp_path: Path) -> None:
    stage = prepare(tmp_path / "out")
    folder = attempt(stage, "p0-0.a", web01__log=b"one\n")
    before = seen(tmp_path / "out")

    publish(tmp_path / "out", [(0, folder)])
    finish(tmp_path / "out", {"lines": 1})

    assert (before, seen(tmp_path / "out")) == ({}, {"web01.log": b"one\n"})
    assert json.loads((tmp_path / "out/.replay.json").read_text()) == {
        "version": 1,
        "state": "done",
        "lines": 1,
    }


def test_an_unfinished_replay_is_begun_anew_and_what_it_had_placed_goes(tmp_path: Path) -> None:
    stage = prepare(tmp_path)
    publish(tmp_path, [(0, attempt(stage, "p0-0.a", web01__log=b"one\n"))])

    again = prepare(tmp_path)

    assert seen(tmp_path) == {}
    assert list(again.iterdir()) == []


def test_a_mark_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".replay.json")

    with pytest.raises(OSError, match="no regular file"):
        prepare(tmp_path)


def test_an_unfinished_paced_replay_is_begun_anew_too(tmp_path: Path) -> None:
    prepare(tmp_path)
    for name in ("web01.log", "web01.log.000001", "web01.log.000002.zst"):
        (tmp_path / name).write_bytes(b"half\n")

    prepare(tmp_path)

    assert seen(tmp_path) == {}


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


def test_a_host_of_two_partitions_has_a_file_of_each(tmp_path: Path) -> None:
    stage = prepare(tmp_path)
    first = attempt(stage, "p0-0.a", web01__log=b"one\n")
    second = attempt(stage, "p3-0.b", web01__log=b"three\n", web01__log__000001=b"two\n")

    publish(tmp_path, [(0, first), (3, second)])

    assert seen(tmp_path) == {
        "web01.log": b"one\n",
        "web01..p3.log.000001": b"two\n",
        "web01..p3.log": b"three\n",
    }


def test_files_and_folders_of_two_partitions_do_not_meet(tmp_path: Path) -> None:
    layout = "{host}/{file}"
    stage = prepare(tmp_path / "out", layout)
    first, second = stage / "p0-0.a", stage / "p3-0.b"
    for path in (first / "web01/a", first / "web01/b/x", second / "web01/a", second / "web01/b/x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.parent.parent.name.encode())
    (second / "web01/a.000001").write_bytes(b"before\n")
    third = stage / "p4-0.c"
    (third / "web01/a").mkdir(parents=True)
    (third / "web01/a/y").write_bytes(b"in a folder\n")
    (third / "web01/b").write_bytes(b"a file\n")

    publish(tmp_path / "out", [(0, first), (3, second), (4, third)], layout)
    finish(tmp_path / "out", {})

    assert sorted(walk(tmp_path / "out")) == [
        "web01..p3/a",
        "web01..p3/a.000001",
        "web01..p3/b/x",
        "web01/a",
        "web01/a..%%d/y",
        "web01/b..%%f",
        "web01/b/x",
    ]


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


def test_a_folder_that_only_a_task_saw_is_an_error_that_says_so(tmp_path: Path) -> None:
    prepare(tmp_path)

    with pytest.raises(OperatorError, match="executors share"):
        publish(tmp_path, [(0, tmp_path / "elsewhere")])
