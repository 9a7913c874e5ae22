"""How changes are noticed: heard, glanced at or polled, and none is missed on the way from one to the other."""

import asyncio
import ctypes
import errno
import itertools
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from watchdog.observers import inotify_c

from shipper.tail.follower import Follower
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Selection
from shipper.tail.watcher import Inotify

SOON = 40.0  # seconds, on a machine that is busy with other things


class Agent:
    """A follower and the loop around it, as the program has it, without a broker; `heard` counts its wake-ups."""

    def __init__(self, folder: Path, **options: bool | float) -> None:
        numbers = itertools.count()
        self.folder = folder
        self.got = b""
        self.notices: list[Notice] = []
        self.follower = Follower(
            Selection.of([str(folder / "*.log")]),
            [],
            new_id=lambda: f"id{next(numbers)}",
            clock=time.time_ns,
            **options,  # type: ignore[arg-type] - the test names them
        )

    async def step(self, longest: float) -> None:
        """Take what there is and wait for more, as the loop of the program does, but never look without a reason."""
        if self.follower.look_due:
            self.notices += await self.follower.look()
        blocks = await self.follower.gather(1 << 22)
        self.got += b"".join(block.lines for block in blocks)
        if not blocks and not self.follower.look_due:
            await self.follower.wait(min(longest, self.follower.patience))

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON):
            while not done():
                await self.step(longest=0.1)

    async def until_quiet(self) -> None:
        """Go on until everything is listened to again."""
        await self.until(
            lambda: self.follower.patience == float("inf") and not self.follower.look_due
        )

    def write(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def lines_of(self, name: str) -> list[bytes]:
        return [line for line in self.got.splitlines() if line.startswith(name.encode())]


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    await agent.follower.close()


async def test_every_write_is_noticed_whatever_comes_between_them(agent: Agent) -> None:
    chance = random.Random(7)
    count = dict.fromkeys(("a", "b", "c"), 0)
    pauses = (0.0, 0.001, 0.03, 0.2, 0.95, 1.0, 1.02, 1.05, 1.08)

    async def write() -> None:
        for _ in range(12):
            for _ in range(chance.randrange(1, 5)):
                name = chance.choice(list(count))
                agent.write(f"{name}.log", b"%b%04d\n" % (name.encode(), count[name]))
                count[name] += 1
            await asyncio.sleep(chance.choice(pauses))

    writing = asyncio.create_task(write())
    while not writing.done():
        await agent.step(longest=0.01)
    await agent.until(lambda: len(agent.got.splitlines()) == sum(count.values()))

    for name, number in count.items():
        assert agent.lines_of(name) == [b"%b%04d" % (name.encode(), n) for n in range(number)]


async def test_a_file_that_comes_right_before_its_folder_is_watched_is_found_at_once(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Inotify.watch_folder

    def late(self: Inotify, path: str, inode: int) -> int:
        if not (agent.folder / "app.log").exists():
            agent.write("app.log", b"1\n")
        return watch(self, path, inode)

    await asyncio.sleep(0.1)  # the folder itself is not new
    monkeypatch.setattr(Inotify, "watch_folder", late)

    await agent.until(lambda: agent.got == b"1\n")


async def test_a_file_that_became_quiet_is_heard_at_once(agent: Agent) -> None:
    agent.write("a.log", b"1\n")
    await agent.until_quiet()
    for number in range(2, 4):
        agent.write("a.log", b"%d\n" % number)
        await agent.until(lambda n=number: agent.got.endswith(b"%d\n" % n))  # type: ignore[misc]
        await agent.until_quiet()

    assert agent.got == b"1\n2\n3\n"


async def test_a_busy_file_is_not_listened_to(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    original = inotify_c.InotifyFD.handle_event

    def count(self: inotify_c.InotifyFD, event: inotify_c.InotifyEvent) -> None:
        nonlocal read
        read += 1
        original(self, event)

    monkeypatch.setattr(inotify_c.InotifyFD, "handle_event", count)
    agent.write("a.log", b"0\n")
    await agent.until_quiet()
    before = read
    for number in range(1, 500):
        agent.write("a.log", b"%d\n" % number)
        if number % 50 == 0:
            await agent.step(longest=0.01)
    await agent.until(lambda: agent.got.endswith(b"499\n"))

    # the one write that was heard and the end of its watch; a slow machine may have seen it quiet in between
    assert read - before < 50


async def test_a_file_that_is_cut_off_while_it_is_quiet_is_looked_at(agent: Agent) -> None:
    agent.write("a.log", b"one\ntwo\n")
    await agent.until(lambda: agent.got == b"one\ntwo\n")
    await agent.until_quiet()

    os.truncate(agent.folder / "a.log", 0)
    await agent.until(lambda: any(n.kind is NoticeKind.TRUNCATED for n in agent.notices))
    agent.write("a.log", b"3\n")

    await agent.until(lambda: agent.got == b"one\ntwo\n3\n")


async def test_a_file_that_is_cut_off_while_it_grows_is_looked_at(agent: Agent) -> None:
    agent.write("a.log", b"one\n")
    await agent.until_quiet()
    agent.write("a.log", b"two\n")
    await agent.until(lambda: agent.got == b"one\ntwo\n")
    os.truncate(agent.folder / "a.log", 0)

    await agent.until(lambda: any(n.kind is NoticeKind.TRUNCATED for n in agent.notices))


@pytest.fixture
def queue_length() -> int:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 50_000:
        pytest.skip("the queue is too long here to be filled in a test")
    return most


async def test_after_the_queue_ran_over_everything_is_looked_at(
    agent: Agent, tmp_path: Path, queue_length: int
) -> None:
    agent.write("a.log", b"1\n")
    agent.write("b.log", b"1\n")
    await agent.until_quiet()
    lock = _reader(agent)._lock
    with lock:  # what watchdog's thread needs to read on
        for number in range(queue_length // 2 + 10):
            name = tmp_path / f"flood{number % 2}"
            name.touch()
            name.unlink()
        agent.write("a.log", b"2\n")
        (tmp_path / "c.log").write_bytes(b"new\n")

    await agent.until(lambda: b"new\n" in agent.got and agent.got.count(b"2\n") == 1)
    await agent.until_quiet()
    agent.write("b.log", b"3\n")
    await agent.until(lambda: agent.got.endswith(b"3\n"))


def _reader(agent: Agent) -> inotify_c.InotifyFD:
    inotify = agent.follower._attention._watcher._inotify
    assert inotify is not None
    return inotify._reader


@pytest.mark.parametrize("allowed", [0, 2, 3], ids=["no folder", "no file", "one file"])
async def test_where_watches_run_out_it_is_said_once_and_the_rest_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    real = inotify_c.inotify_add_watch
    left = allowed

    def add(descriptor: int, path: bytes, mask: int) -> int:
        nonlocal left
        if left == 0:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        left -= 1
        return real(descriptor, path, mask)

    monkeypatch.setattr(inotify_c, "inotify_add_watch", add)
    agent = Agent(tmp_path, poll_every=0.05)
    for name in ("a.log", "b.log", "c.log"):
        agent.write(name, b"1\n")
    await agent.until(lambda: agent.got == b"1\n1\n1\n")
    for name in ("a.log", "b.log", "c.log"):
        agent.write(name, b"2\n")
    await agent.until(lambda: agent.got.count(b"2\n") == 3)
    agent.write("d.log", b"late\n")
    await agent.until(lambda: agent.got.endswith(b"late\n"))
    await agent.follower.look()
    await agent.follower.close()

    said = [notice for notice in agent.notices if notice.kind is NoticeKind.UNWATCHED]
    assert len(said) == 1
    assert str(tmp_path).startswith(said[0].path) or said[0].path.startswith(f"{tmp_path}/")
    assert "max_user_watches" in said[0].text


async def test_where_instances_run_out_all_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> int:
        ctypes.set_errno(errno.EMFILE)
        return -1

    monkeypatch.setattr(inotify_c, "inotify_init", init)
    agent = Agent(tmp_path, poll_every=0.05)
    agent.write("a.log", b"1\n")
    await agent.until(lambda: agent.got == b"1\n")
    agent.write("a.log", b"2\n")
    await agent.until(lambda: agent.got == b"1\n2\n")
    await agent.follower.close()

    said = [notice for notice in agent.notices if notice.kind is NoticeKind.UNWATCHED]
    assert ["max_user_instances" in notice.text for notice in said] == [True]


async def test_a_file_system_that_tells_nothing_is_polled_without_a_word(tmp_path: Path) -> None:
    agent = Agent(tmp_path, poll_every=0.05, listen=False)
    agent.write("a.log", b"1\n")
    await agent.until(lambda: agent.got == b"1\n")

    agent.write("a.log", b"2\n")
    await agent.until(lambda: agent.got.endswith(b"2\n"))
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    agent.write("a.log", b"3\n")
    await agent.until(lambda: agent.got.endswith(b"3\n"))
    os.truncate(tmp_path / "a.log", 0)
    await agent.until(lambda: any(n.kind is NoticeKind.TRUNCATED for n in agent.notices))
    await agent.follower.close()

    assert agent.got == b"1\n2\n3\n"
    assert not [notice for notice in agent.notices if notice.kind is NoticeKind.UNWATCHED]


async def test_a_watch_stays_with_the_file_that_it_was_set_for(agent: Agent) -> None:
    agent.write("a.log", b"1\n")
    agent.write("b.log", b"1\n")
    await agent.until_quiet()
    (agent.folder / "a.log").rename(agent.folder / "a.log.2")
    (agent.folder / "b.log").rename(agent.folder / "a.log")
    await agent.until_quiet()

    with (agent.folder / "a.log.2").open("ab") as stale:
        stale.write(b"stale\n")

    await agent.until(lambda: b"stale\n" in agent.got)


async def test_a_thread_that_has_died_is_noticed_by_the_next_look(agent: Agent) -> None:
    agent.write("a.log", b"1\n")
    await agent.until_quiet()
    await asyncio.to_thread(_end, _reader(agent))
    agent.write("a.log", b"2\n")
    await agent.follower.look()
    await agent.until(lambda: agent.got == b"1\n2\n")
    await agent.until_quiet()

    agent.write("a.log", b"3\n")

    await agent.until(lambda: agent.got == b"1\n2\n3\n")


def _end(reader: inotify_c.InotifyFD) -> None:
    reader.stop()
    reader.join()


async def test_lines_that_went_out_of_memory_while_the_file_grew_are_read_all_the_same(
    agent: Agent,
) -> None:
    agent.write("a.log", b"one\n")
    await agent.until_quiet()
    for number in range(5):
        agent.write("a.log", b"%d\n" % number)
        with (agent.folder / "a.log").open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        await agent.until(lambda n=number: agent.got.endswith(b"%d\n" % n))  # type: ignore[misc]

    assert agent.got == b"one\n0\n1\n2\n3\n4\n"
