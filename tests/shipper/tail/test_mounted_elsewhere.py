"""A folder that the kernel's table of mounts names as one of another machine: nothing is heard there, and none complains."""

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from shipper.tail.scan import FileKey
from shipper.tail.watcher import Target, Watcher


@pytest.mark.parametrize(
    ("kind", "is_heard"),
    [("nfs4", False), ("fuse.sshfs", False), ("ext4", True)],
    ids=["nfs", "fuse", "local"],
)
async def test_only_folders_and_files_of_this_machine_are_listened_to(
    tmp_path: Path, kind: str, is_heard: bool
) -> None:
    logs, table = tmp_path / "logs", tmp_path / "mountinfo"
    logs.mkdir()
    (logs / "a.log").write_bytes(b"1\n")
    status = (logs / "a.log").stat()
    number = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    table.write_text(f"90 30 {number} / {logs} rw,relatime shared:9 - {kind} server:/logs rw\n")
    key = FileKey(status.st_dev, status.st_ino)

    def heard(files: Collection[FileKey], moved: bool) -> None:
        pass

    watcher = Watcher(heard, mounts=table)
    folders = await watcher.follow([str(logs)], {key}, 0)
    files = await watcher.listen([Target(key, str(logs / "a.log"))], lambda _key, _seen: None)
    await watcher.close()

    assert [folder.path for folder in folders.folders] == ([] if is_heard else [str(logs)])
    assert [target.key for target in files.files] == ([] if is_heard else [key])
    assert folders.complaint is None
    assert files.complaint is None
