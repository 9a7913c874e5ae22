"""Backups in a directory are whole or not there, and say what they hold."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.exits import OperatorError
from broker.backup import archives
from broker.backup.archives import NAME, load

NOW = datetime(2026, 11, 21, 16, 45, tzinfo=UTC)


def put(folder: Path, now: datetime = NOW) -> Path:
    with archives.new_backup(folder, now) as part:
        (part / NAME).write_bytes(b"{}")
    return archives.name_of(folder, now)


def test_it_gets_its_name_once_it_is_whole(tmp_path: Path) -> None:
    with archives.new_backup(tmp_path / "a" / "b", NOW) as part:
        assert part.name == "2026-11-21T164500Z.part"
        assert part.stat().st_mode & 0o777 == 0o700
        (part / NAME).write_bytes(b"{}")

    assert archives.find(tmp_path / "a" / "b").name == "2026-11-21T164500Z"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["2026-11-21T164500Z"]


def test_nothing_is_left_of_one_that_was_broken_off(tmp_path: Path) -> None:
    with pytest.raises(SystemExit), archives.new_backup(tmp_path, NOW):
        raise SystemExit

    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_is_no_backup_and_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "2026-11-20T000000Z.part"
    left.mkdir()
    (left / NAME).write_bytes(b"{}")
    other = tmp_path / "mine.part"
    other.mkdir()
    with pytest.raises(OperatorError, match="no whole backup"):
        archives.find(tmp_path)

    put(tmp_path)

    assert not left.exists()
    assert other.exists()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        archives.new_backup(tmp_path, NOW),
        pytest.raises(OperatorError, match="under way"),
        archives.new_backup(tmp_path, NOW + timedelta(seconds=1)),
    ):
        pass


def test_the_newest_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    made = [put(tmp_path, NOW + timedelta(hours=hour)) for hour in range(4)]
    (tmp_path / "notes").touch()

    removed = archives.prune(tmp_path, 2)

    assert removed == made[:2]
    assert [path for path in made if path.exists()] == made[2:]
    assert (tmp_path / "notes").exists()
    assert archives.find(tmp_path) == made[3]
    assert archives.find(made[2]) == made[2]


def test_a_folder_that_others_may_enter_is_refused_with_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o701)

    with pytest.raises(OperatorError, match="chmod 700"), archives.new_backup(tmp_path, NOW):
        pytest.fail("others could read it")

    assert list(tmp_path.iterdir()) == []


ARCHIVE: dict[str, Any] = {
    "stream": "LOGS",
    "file": "LOGS.nats",
    "size": 5,
    "sha256": "ab",
    "created": "2026-11-20T00:00:00Z",
    "config": {"name": "LOGS", "subjects": ["logs.>"]},
    "state": {"messages": 2, "bytes": 50, "first_seq": 1, "last_seq": 3},
}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "began": "2026-11-21T00:00:00Z",
    "server": "nats://a",
    "archives": [ARCHIVE],
}


def test_it_reads_what_it_wrote_and_refuses_what_is_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text(json.dumps(DOCUMENT))
    backup = load(tmp_path)
    path.write_text(backup.model_dump_json())
    assert load(tmp_path) == backup

    wrong = [{"file": "../x"}, {"size": "5"}, {"colour": "blue"}]
    changed = [{**DOCUMENT, "archives": [{**ARCHIVE, **change}]} for change in wrong]
    for document in (*changed, {**DOCUMENT, "version": 2}, "cut off"):
        path.write_text(json.dumps(document))
        with pytest.raises(OperatorError, match="damaged, or of another version"):
            load(tmp_path)
