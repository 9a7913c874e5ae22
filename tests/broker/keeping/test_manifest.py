"""What a backup says of itself survives the disk, and nothing else is taken for it."""

import json
from dataclasses import asdict

import pytest

from broker.keeping.manifest import Archive, Backup, UnreadableBackup

ARCHIVE = Archive(
    "LOGS",
    "LOGS.nats",
    5,
    "ab",
    "2026-11-20T00:00:00Z",
    {"name": "LOGS", "subjects": ["logs.>"]},
    {"messages": 2, "bytes": 50, "first_seq": 1, "last_seq": 3},
)
BACKUP = Backup("2026-11-21T00:00:00Z", "2026-11-21T00:00:01Z", "nats://a", "2.15.1", (ARCHIVE,))


def test_it_reads_what_it_wrote() -> None:
    assert Backup.decode(BACKUP.encode()) == BACKUP
    assert (ARCHIVE.messages, ARCHIVE.bytes, ARCHIVE.until) == (2, 50, 4)


@pytest.mark.parametrize("length", range(0, len(BACKUP.encode()) - 2, 37))
def test_a_manifest_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(UnreadableBackup):
        Backup.decode(BACKUP.encode()[:length])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"file": "../x"}, id="a path out of the folder"),
        pytest.param({"file": ".."}, id="a folder"),
        pytest.param({"config": {"name": "OTHER"}}, id="another stream's configuration"),
        pytest.param({"config": None}, id="no configuration"),
        pytest.param({"size": "5"}, id="a size that is no number"),
        pytest.param({"colour": "blue"}, id="a field that is not ours"),
    ],
)
def test_an_entry_that_does_not_hold_together_is_refused(change: dict[str, object]) -> None:
    document = {"version": 1, **asdict(BACKUP), "archives": [{**asdict(ARCHIVE), **change}]}

    with pytest.raises(UnreadableBackup):
        Backup.decode(json.dumps(document).encode())


def test_a_later_version_is_refused_by_its_number() -> None:
    with pytest.raises(UnreadableBackup, match="version 2"):
        Backup.decode(json.dumps({"version": 2, **asdict(BACKUP)}).encode())
