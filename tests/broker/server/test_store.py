import errno
import os
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.server.store import held_store, measure, remember_promise


def test_a_store_has_one_owner_at_a_time(tmp_path: Path) -> None:
    owner = pytest.raises(OperatorError, match=str(os.getpid()))

    with held_store(tmp_path / "s"), owner, held_store(tmp_path / "s"):
        pass


def test_a_store_that_was_let_go_can_be_held_again(tmp_path: Path) -> None:
    for _ in range(2):
        with held_store(tmp_path / "s"):
            pass


def test_a_disk_that_fails_as_the_lock_is_taken_is_told_in_a_line_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", fail)
        refused = pytest.raises(OperatorError, match=r"cannot use the store .*: Input/output error")
        with refused, held_store(tmp_path / "s"):
            pass
    with held_store(tmp_path / "s"):
        pass


def test_whoever_inherits_the_lock_keeps_others_out(tmp_path: Path) -> None:
    with held_store(tmp_path / "s") as lock:
        inherited = os.dup(lock)

    with pytest.raises(OperatorError), held_store(tmp_path / "s"):
        pass
    os.close(inherited)


def test_what_streams_may_grow_to_is_read_from_the_store_and_damage_is_passed_over(
    tmp_path: Path,
) -> None:
    contents = {"A": '{"max_bytes": 700}', "B": '{"max_bytes": -1}', "C": "{", "D": "[]", "E": "\0"}
    for name, content in contents.items():
        folder = tmp_path / "jetstream" / "$G" / "streams" / name
        folder.mkdir(parents=True)
        (folder / "meta.inf").write_text(content, "utf-8")

    space = measure(tmp_path)

    assert space.promised == 700
    assert space.held == sum(map(len, contents.values()))
    assert 0 < space.free <= space.total


def stream_of(store: Path, account: str) -> Path:
    folder = store / "jetstream" / account / "streams" / "LOGS"
    folder.mkdir(parents=True)
    return folder


def test_what_an_encrypted_stream_may_grow_to_is_remembered_beside_it(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, "LOGS")
    (stream / "meta.inf").write_bytes(b"\xff\x00")

    remember_promise(tmp_path, 700)

    assert measure(tmp_path).promised == 0  # a store in the clear tells by itself
    (stream / "meta.key").write_bytes(bytes(72))
    assert measure(tmp_path).promised == 700
    (tmp_path / "promise.json").write_text("[", "utf-8")
    assert measure(tmp_path).promised == 0


def test_pipes_in_the_place_of_a_stores_files_are_passed_over(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, "LOGS")
    (stream / "meta.key").write_bytes(bytes(72))
    os.mkfifo(stream / "meta.inf")
    os.mkfifo(tmp_path / "promise.json")

    assert measure(tmp_path).promised == 0
