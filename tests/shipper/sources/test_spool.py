"""The spool of a pipe: taken over while the pipe, or a file of the spool, cannot be opened."""

import errno
import itertools
import os
import time
from pathlib import Path

import pytest

from nats_logship.app.files import Folder
from nats_logship.app.locks import exclusive_lock
from shipper.sources.files.records import RecordRules
from shipper.sources.several import Sources
from shipper.sources.spool import open_spools
from shipper.sources.spool_folder import SpoolFolder, name_input, open_home


@pytest.fixture
def home(tmp_path: Path) -> Folder:
    """Return the folder of spools, with the files of a run before the last boot for a pipe."""
    home = open_home(tmp_path / "state", "web01")
    os.mkfifo(pipe := tmp_path / "pipe")
    for number in (1, 2):
        segment = SpoolFolder(home, str(pipe)).make(number, f"old-{number}", 0)
        os.write(segment.descriptor, b"unfinished %d" % number)
        os.close(segment.descriptor)
    return home


async def take_over(sources: Sources, pipe: Path, home: Folder) -> None:
    """Add the spool of a pipe that another process reads until then."""
    ids = itertools.count()
    with exclusive_lock(home.path / f"{name_input(str(pipe))}.lock", 0.0):
        (spool,) = open_spools(
            *([str(pipe)], home.path.parent, "web01"),
            once=False,
            takes_over=True,
            records=RecordRules(),
            new_id=lambda: f"new-{next(ids)}",
            clock=time.time_ns,
            wake=sources.wake,
        )
        sources.add(spool)
        await sources.rewind({})
        await sources.scan()
        assert sources.obstacle == f"another shipper on this machine reads {pipe}"


async def require_all(sources: Sources, pipe: Path) -> None:
    """Scan, write a line into the pipe, and assert that it and all older lines are read."""
    await sources.scan()
    found: list[bytes] = []
    with pipe.open("r+b", buffering=0) as writer:
        writer.write(b"new\n")
        while len(found) < 3:
            found += [block.lines for block in await sources.gather(65536)]
    await sources.close()

    assert found == [b"unfinished 1", b"unfinished 2", b"new\n"]
    assert sources.obstacle == ""


async def test_a_pipe_that_is_away_when_it_is_taken_over_is_read_once_it_is_there(
    home: Folder, tmp_path: Path
) -> None:
    sources, pipe = Sources(), tmp_path / "pipe"
    await take_over(sources, pipe, home)
    pipe.unlink()
    for _ in range(3):
        await sources.scan()
        assert sources.obstacle == f"{pipe}: {os.strerror(errno.ENOENT)}"

    os.mkfifo(pipe)
    await require_all(sources, pipe)


@pytest.mark.parametrize("failing", [".lock", "-00000001-old-1-0", "-00000002-old-2-0"])
async def test_a_spool_that_cannot_be_opened_when_it_is_taken_over_is_read_once_it_can_be(
    home: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(path: str, *given: object, **options: object) -> int:
        if str(path).endswith(failing):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_file(path, *given, **options)  # type: ignore[arg-type]

    sources, pipe, open_file = Sources(), tmp_path / "pipe", os.open
    await take_over(sources, pipe, home)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        for _ in range(3):
            await sources.scan()
            assert os.strerror(errno.EMFILE) in sources.obstacle
    await require_all(sources, pipe)
