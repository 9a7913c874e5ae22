"""What a backup says of itself survives the disk, and nothing else is taken for it."""

import json
from typing import Any

import pytest

from broker.backup.manifest import Backup, UnreadableBackup

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
    "ended": "2026-11-21T00:00:01Z",
    "server": "nats://a",
    "server_version": "2.15.1",
    "archives": [ARCHIVE],
}
BACKUP = Backup.decode(json.dumps(DOCUMENT).encode())


def test_it_reads_what_it_wrote() -> None:
    assert Backup.decode(BACKUP.encode()) == BACKUP
    assert [(one.messages, one.bytes, one.until) for one in BACKUP.archives] == [(2, 50, 4)]


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
    document = {**DOCUMENT, "archives": [{**ARCHIVE, **change}]}

    with pytest.raises(UnreadableBackup):
        Backup.decode(json.dumps(document).encode())


def test_a_later_version_is_refused() -> None:
    with pytest.raises(UnreadableBackup, match="another version: version"):
        Backup.decode(json.dumps({**DOCUMENT, "version": 2}).encode())
