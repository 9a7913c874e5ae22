"""Files that cannot be read for a while, or for good: newer files wait for them, but not long."""

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shipper.sources.notices import NoticeKind
from tests.shipper.conftest import NOBODY, as_user
from tests.shipper.host import SECOND, Host
from tests.shipper.sources.files.conftest import MakeHost

Break = Callable[[Path, int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Return a function that has reads of a file fail with an error, or not any more with 0."""
    failing: dict[int, int] = {}

    def fails(descriptor: int) -> None:
        if error := failing.get(os.fstat(descriptor).st_ino, 0):
            raise OSError(error, os.strerror(error))

    def preadv(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        fails(descriptor)
        return read(descriptor, buffers, offset)

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        fails(descriptor)
        return read_some(descriptor, length, offset)

    read, read_some = os.preadv, os.pread
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "pread", pread)
    return lambda path, error: failing.update({path.stat().st_ino: error})


def reported(host: Host) -> list[str]:
    notices = host.reported(NoticeKind.UNREADABLE)
    return [one.text for one in notices if "tried again" in one.text]


async def rotated(host: Host) -> Path:
    """Return a rotated file with a line that is not read, which has a successor."""
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"3\n")
    return host.folder / "app.log.1"


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
async def test_the_next_file_waits_while_a_rotated_one_cannot_be_read(
    host: Host, fail: Break, error: int
) -> None:
    file = await rotated(host)
    fail(file, error)
    await host.ship()
    host.later += 9 * SECOND
    await host.ship()
    waiting = host.shipped
    fail(file, 0)
    await host.ship()

    assert waiting == b"1\n"
    assert host.shipped == b"1\n2\n3\n"
    assert f"cannot be read: {os.strerror(error)}; is tried again" in reported(host)[0]
    assert len(reported(host)) == 1


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_file_that_cannot_be_read_holds_no_other_for_ever_and_is_read_once_it_can(
    host: Host, fail: Break, is_deleted: bool
) -> None:
    file = await rotated(host)
    await host.scan()
    fail(file, errno.EIO)
    if is_deleted:
        file.rename(host.folder / "app.log.1.gone")
    for _ in range(4):
        await host.ship()
        host.later += 6 * SECOND
    without = host.shipped
    fail(host.folder / ("app.log.1.gone" if is_deleted else "app.log.1"), 0)
    await host.ship()

    assert without == b"1\n3\n"
    assert host.shipped == b"1\n3\n2\n"
    assert len(reported(host)) == 1
    assert host.reported(NoticeKind.GONE) == []


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_rotated_file_whose_opening_fails_is_waited_for_and_then_passed_over(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, error: int, is_known: bool
) -> None:
    def open_or_fail(path: str, *rest: int) -> int:
        if path == str(file):
            raise OSError(error, os.strerror(error))
        return open_file(path, *rest)

    host = make_host(listen=False)  # so that none is opened when it comes
    file, open_file = await rotated(host), os.open
    if is_known:
        await host.restart_with_saved_positions()
    else:
        host.move("app.log.1", "app.log.2")
        host.move("app.log", "app.log.1")
        host.write("app.log", b"4\n")
    monkeypatch.setattr(os, "open", open_or_fail)
    await host.ship()
    host.later += 5 * SECOND
    await host.ship()
    waiting = host.shipped
    host.later += 6 * SECOND
    await host.ship()
    without = host.shipped
    monkeypatch.undo()
    await host.ship()

    read, missing, newer = (b"1\n", b"2\n", b"3\n") if is_known else (b"1\n2\n", b"3\n", b"4\n")
    assert waiting == read
    assert without == read + newer
    assert host.shipped == read + newer + missing
    [problem] = host.reported(NoticeKind.UNREADABLE)
    assert problem.text.startswith(f"cannot be read: {os.strerror(error)}")


@pytest.mark.parametrize("is_renamed", [False, True])
async def test_a_rotated_file_that_may_not_be_opened_is_waited_for_and_then_passed_over(
    is_renamed: bool,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name)).chmod(0o777)
        with as_user(NOBODY):
            host = Host(folder, "*.log", open_files=1, block_size=2)
            host.write("app.log", b"1\n")
            host.write("other.log", b"1\n")
            await host.ship()
            host.write("app.log", b"2\n2\n")
            host.write("other.log", b"2\n2\n")
            host.move("app.log", "app.log.1")
            host.write("app.log", b"3\n")
            await host.scan()
            for _ in range(2):  # one of each file, so that the rotated one is closed
                host.blocks += await host.follower.gather(1)
            name = "app.log.2" if is_renamed else "app.log.1"
            host.move("app.log.1", name)
            (folder / name).chmod(0)
            shipped = []
            for seconds in (0, 9, 2):
                host.later += seconds * SECOND
                shipped.append(await host.ship())
            (folder / name).chmod(0o600)
            shipped.append(await host.ship())
            await host.follower.close()

    assert [b"".join(shipped[:2]), *shipped[2:]] == [b"2\n", b"3\n", b"2\n"]
    assert len(reported(host)) == 1
