"""Several sources as one."""

import asyncio
import errno
import itertools
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor, Positions
from shipper.sources import spool
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.files.records import RecordRules
from shipper.sources.journal.rules import Options
from shipper.sources.journal.source import JournalSource
from shipper.sources.several import Sources
from shipper.sources.spool_folder import SpoolFolder, open_home
from shipper.sources.spooled import SEGMENT
from tests.shipper.host import SECOND, Host

DAY = 86_400 * SECOND


async def test_no_line_of_another_source_comes_between_the_pieces_of_an_over_long_one(
    tmp_path: Path,
) -> None:
    sources, hosts = Sources(), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        hosts.append(Host(tmp_path / name, max_line=1000, block_size=1000, is_only=False))
        hosts[-1].write("app.log", b"x" * 500_000 + b"\n" + b"short\n" * 1000)
        sources.add(hosts[-1].follower)
    await sources.rewind({})
    await sources.scan()

    gathered = []
    while any(state.readable_since for state in sources.files()):  # the ends are searched in parts
        gathered += await sources.gather(2000)
    await sources.close()

    for before, after in pairwise(gathered):
        if after.continues:
            assert before.section.span.end == after.section.span.start
            assert before.section.path == after.section.path
    assert sum(block.continues for block in gathered) == 2 * 500
    first = {block.section.path: number for number, block in reversed([*enumerate(gathered)])}
    assert sorted(first.values())[1] < 600, "the second source waits for the end of the first"


async def test_old_files_are_forgotten_while_a_journal_has_trouble_which_keeps_its_own(
    tmp_path: Path,
) -> None:
    host, sources = Host(tmp_path, is_only=False), Sources()
    acknowledged = Acknowledged(host.steady)
    folder = str(tmp_path / "absent")
    journal = JournalSource(Options("journal", folder), lambda: "new", time.time_ns, sources.wake)
    sources.add(host.follower)
    sources.add(journal)
    identity = Identity(0, 0, "", 0, "")
    cursors = (
        Cursor("file", str(tmp_path / "gone.log"), 5, identity, 1),
        Cursor("unread", str(tmp_path / "gone.log"), 0, identity, 1),
        Cursor("read", "journal", 5, identity, 1, unit="entries"),
        Cursor("found", "journal", 0, identity, 1, unit="entries"),
    )
    acknowledged.positions = Positions({one.file: one for one in cursors})

    await sources.rewind(acknowledged.positions.files)
    await acknowledged.forget_gone(sources, time.time_ns())
    before = set(acknowledged.positions.files)
    await sources.scan()
    acknowledged.add_found(sources)
    host.later += 8 * DAY
    await acknowledged.forget_gone(sources, time.time_ns())
    await sources.close()

    assert journal.troubles
    assert before == {"file", "unread", "read", "found"}
    assert set(acknowledged.positions.files) == {"read", "found"}


async def test_an_agent_without_journal_forgets_only_journals_that_have_ended(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    acknowledged = Acknowledged(host.steady)
    identity = Identity(0, 0, "", 0, "")
    journals = [
        Cursor(f"{ended}", "journal", 5, identity, 1, ended=ended, unit="entries")
        for ended in (True, False)
    ]
    acknowledged.positions = Positions({one.file: one for one in journals})
    await host.follower.rewind({})
    await host.follower.scan()

    await acknowledged.forget_gone(host.follower, time.time_ns())
    host.later += 8 * DAY
    await acknowledged.forget_gone(host.follower, time.time_ns())

    assert set(acknowledged.positions.files) == {"False"}


async def open_sources(folder: Path, content: bytes, size: int) -> tuple[Host, Sources, Path]:
    """Open a log file, and a pipe of which a run before has spooled `content`, filled up with NULs.

    Returns the host of the file, both sources, and the first segment of the spool.
    """
    for name in ("logs", "state"):
        (folder / name).mkdir()
    os.mkfifo(pipe := folder / "pipe")
    home = open_home(folder / "state", "web01")
    for start in range(0, size, SEGMENT):
        segment = SpoolFolder(home, str(pipe)).make(1, "old-1", start)
        os.write(segment.descriptor, content)
        os.truncate(segment.descriptor, min(SEGMENT, size - start))
        os.close(segment.descriptor)
    host, sources, ids = Host(folder / "logs", is_only=False), Sources(), itertools.count()
    given = {"new_id": lambda: f"new-{next(ids)}", "clock": time.time_ns, "wake": sources.wake}
    (one,) = spool.open_spools(
        *([str(pipe)], folder / "state", "web01"),
        once=False,
        takes_over=False,
        records=RecordRules(),
        **given,
    )
    sources.add(one)
    sources.add(host.follower)
    await sources.rewind({})
    await sources.scan()
    return host, sources, next((folder / "state").glob("*/*-old-1-0"))


async def gather_lines(sources: Sources, count: int) -> list[bytes]:
    """Return so many lines, sorted."""
    lines: list[bytes] = []
    async with asyncio.timeout(20):
        while len(lines) < count:
            for block in await sources.gather(65536):
                lines += block.lines.splitlines()
            await asyncio.sleep(0.01)
    return sorted(lines)


async def test_a_segment_that_cannot_be_read_or_closed_keeps_no_other_line_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        fail(descriptor)
        return read(descriptor, length, offset)

    def close(descriptor: int) -> None:
        kept = os.dup(descriptor)
        close_file(descriptor)
        try:
            fail(kept)
        finally:
            close_file(kept)

    host, sources, segment = await open_sources(tmp_path, b"old\n", 4)
    bad, read, close_file = segment.stat().st_ino, os.pread, os.close
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(spool, "_READ_AGAIN", 0.5)
    host.write("app.log", b"of a file\n")
    await sources.scan()
    with (tmp_path / "pipe").open("r+b", buffering=0) as writer:
        writer.write(b"new\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", pread)
            others = await gather_lines(sources, 2)
            writer.write(b"newer\n")
            others += await gather_lines(sources, 1)
            obstacle = sources.obstacle
            (state,) = (one for one in sources.files() if one.path == str(tmp_path / "pipe"))
        again = await gather_lines(sources, 1)
        sources.stored = lambda _: 1000
        await sources.scan()
        await sources.close()

    assert others == [b"new", b"of a file", b"newer"]
    assert obstacle == f"{segment}: Input/output error"
    assert (state.problem, state.end - state.position) == (obstacle, 4)
    assert (again, sources.obstacle) == ([b"old"], "")
    assert not segment.exists()


async def test_a_line_without_an_end_in_a_pipe_keeps_a_file_waiting_for_64_mib(
    tmp_path: Path,
) -> None:
    host, sources, _ = await open_sources(tmp_path, b"", 6 * SEGMENT)
    gathered = await sources.gather(1)
    host.write("app.log", b"of a file\n")
    await sources.scan()

    while blocks := await sources.gather(1024 * 1024):
        gathered += blocks
    await sources.close()

    lines = [block.lines for block in gathered]
    assert lines.count(b"of a file\n") == 1
    before = lines[: lines.index(b"of a file\n")]
    assert 64 << 20 <= sum(map(len, before)) < 68 << 20
    assert sum(map(len, lines)) == 6 * SEGMENT + 10
