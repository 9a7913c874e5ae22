"""What a backup says of itself survives the disk, and nothing else is taken for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.app.exits import OperatorError
from broker.backup.directory import NAME, load

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


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps(DOCUMENT))

    backup = load(tmp_path)
    (tmp_path / NAME).write_bytes(backup.encode())

    assert load(tmp_path) == backup
    assert [(one.messages, one.bytes, one.until) for one in backup.archives] == [(2, 50, 4)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(DOCUMENT)[:-9], id="cut off"),
        pytest.param(json.dumps({**DOCUMENT, "version": 2}), id="a later version"),
        *(
            pytest.param(json.dumps({**DOCUMENT, "archives": [{**ARCHIVE, **change}]}), id=name)
            for name, change in {
                "a path out of the folder": {"file": "../x"},
                "another stream's configuration": {"config": {"name": "OTHER"}},
                "a size that is no number": {"size": "5"},
                "a field that is not ours": {"colour": "blue"},
            }.items()
        ),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)

    with pytest.raises(OperatorError, match="damaged, or of another version"):
        load(tmp_path)
