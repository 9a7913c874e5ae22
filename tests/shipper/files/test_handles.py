"""Open files: what becomes of the others when one cannot be closed. Real descriptors."""

import os
from pathlib import Path

from shipper.files.handles import Handles
from tests.shipper.host import Host


async def test_a_file_that_cannot_be_closed_keeps_no_other_open(tmp_path: Path) -> None:
    host = Host(tmp_path, "*.log")
    for name in "abc":
        host.write(f"{name}.log", b"line\n")
    await host.ship()
    tailers, handles = host.follower._roster.tailers, Handles(10)
    await handles.open_early(tailers.values())
    opened = [descriptor for key in tailers if (descriptor := handles.opened(key)) is not None]
    os.close(opened[0])  # closing it again is an error, as it is where the file system went away

    await handles.trim({})

    assert len(handles) == 0
    assert [descriptor for descriptor in opened if is_open(descriptor)] == []
    await host.follower.close()


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").exists()
