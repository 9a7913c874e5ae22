"""A directory of backups: each is complete or absent, and has a valid manifest."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.backup import archives
from broker.backup.archives import MANIFEST, Backup, StreamArchive, load_backup
from nats_logship.app.exits import OperatorError

NOW = datetime(2026, 11, 21, 16, 45, tzinfo=UTC)


def put(folder: Path, now: datetime = NOW) -> Path:
    with archives.new_backup(folder, now) as part:
        (part / MANIFEST).write_bytes(b"{}")
    return part.with_suffix("")


def test_only_a_complete_backup_gets_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with suppress(SystemExit), archives.new_backup(folder, NOW) as part:
        assert part.name == "2026-11-21T164500Z.part"
        assert part.stat().st_mode & 0o777 == 0o700
        raise SystemExit
    assert list(folder.iterdir()) == []

    put(folder)

    assert [path.name for path in folder.iterdir()] == ["2026-11-21T164500Z"]


def test_parts_that_a_crash_left_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "2026-11-20T000000Z.part"
    left.mkdir()
    (left / MANIFEST).write_bytes(b"{}")
    other = tmp_path / "mine.part"
    other.mkdir()
    with pytest.raises(OperatorError, match="no complete backup"):
        archives.find_backup(tmp_path)

    put(tmp_path)

    assert not left.exists()
    assert other.exists()


def test_a_second_backup_and_a_folder_open_to_others_are_refused(tmp_path: Path) -> None:
    with (
        archives.new_backup(tmp_path, NOW),
        pytest.raises(OperatorError, match="under way"),
        archives.new_backup(tmp_path, NOW + timedelta(seconds=1)),
    ):
        pass
    tmp_path.chmod(0o701)
    with pytest.raises(OperatorError, match="chmod 700"), archives.new_backup(tmp_path, NOW):
        pass

    assert [path.name for path in tmp_path.iterdir()] == ["2026-11-21T164500Z"]


def test_prune_keeps_the_newest_backups_and_other_files(tmp_path: Path) -> None:
    made = [put(tmp_path, NOW + timedelta(hours=hour)) for hour in range(4)]
    (tmp_path / "notes").touch()

    removed = archives.prune(tmp_path, 2)

    assert removed == made[:2]
    assert sorted(tmp_path.iterdir()) == [*made[2:], tmp_path / "notes"]
    assert archives.find_backup(tmp_path) == made[3]
    assert archives.find_backup(made[2]) == made[2]


def test_an_invalid_manifest_is_refused(tmp_path: Path) -> None:
    of_stream = {"stream": "LOGS", "file": "LOGS.nats", "size": 5, "sha256": "ab", "created": ""}
    archive = StreamArchive(**of_stream, config={"name": "LOGS"}, state={"last_seq": 3})
    backup = Backup(began="2026-11-21T00:00:00Z", server="nats://a", archives=(archive,))
    path, document = tmp_path / MANIFEST, json.loads(backup.model_dump_json())
    path.write_text(json.dumps(document))
    assert load_backup(tmp_path) == backup

    (written,) = document["archives"]
    wrong = [{"file": "../x"}, {"size": "5"}, {"colour": "blue"}]
    changed = [{**document, "archives": [{**written, **change}]} for change in wrong]
    for content in (*changed, {**document, "version": 2}, "cut off"):
        path.write_text(json.dumps(content))
        with pytest.raises(OperatorError, match="damaged, or of another version"):
            load_backup(tmp_path)
