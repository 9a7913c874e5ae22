"""Files that are rewritten in place, as by a job that writes to the same file each time."""

from functools import partial
from pathlib import Path

import pytest

from shipper.sources.files.identity import ContentHash
from shipper.sources.notices import NoticeKind
from tests.shipper.host import Host
from tests.shipper.seams import amid
from tests.shipper.shipped import contents
from tests.shipper.sources.files.conftest import MakeHost

HEAD, TAIL = b"the same head\n" * 100, b"the same tail\n" * 20


async def write_again(host: Host, content: bytes) -> None:
    """Rewrite a file, and scan until it is at rest."""
    (host.folder / "app.log").write_bytes(content)
    for _ in range(3):
        await host.ship()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("size", [20, 500, 90_000, 900_000])
async def test_every_run_with_another_middle_is_shipped(
    host: Host, size: int, *, restarts: bool
) -> None:
    runs = [HEAD + b"%d" % n * size + b"\n" + TAIL for n in range(5)]
    for number, run in enumerate(runs):
        await write_again(host, run)
        if restarts and number % 2:
            await host.restart_with_saved_positions()
            await host.ship()

    assert list(contents(host.blocks, []).values()) == runs
    assert host.reported(NoticeKind.CONTENT) == []


@pytest.mark.parametrize("content", [b"x" * 79 + b"\n", HEAD + TAIL, HEAD * 100])
async def test_a_run_that_writes_the_same_again_is_named_and_not_shipped(
    host: Host, content: bytes
) -> None:
    for _ in range(4):
        await write_again(host, content)

    assert host.shipped == content
    assert [one.path for one in host.reported(NoticeKind.CONTENT)] == [
        str(host.folder / "app.log")
    ] * 3


async def test_lines_that_are_appended_are_not_taken_for_a_file_written_anew(host: Host) -> None:
    host.write("app.log", HEAD)
    for number in range(20):
        await host.scan()
        host.write("app.log", b"%d, " % number)
        await host.gather()
        host.write("app.log", b"end\n")
        if number % 3:
            await host.ship()

    assert host.reported(NoticeKind.CONTENT) == host.reported(NoticeKind.TRUNCATED) == []
    assert len(contents(host.blocks, [])) == 1


async def test_a_file_that_is_not_open_is_compared_once_it_is(make_host: MakeHost) -> None:
    host = make_host("*.log", open_files=1)
    for name in ("a.log", "b.log", "app.log"):
        host.write(name, HEAD + b"1" + TAIL)
    await host.ship()

    await write_again(host, HEAD + b"2" + TAIL)

    assert host.shipped.count(b"2the same tail") == 1


async def test_a_rewritten_file_is_shipped_though_it_is_deleted_before_it_is_sampled(
    tmp_path: Path,
) -> None:
    first, second = (HEAD + b"%d\n" % n + TAIL for n in (1, 2))
    for seam in range(40):  # at some of them the scan compares the file and decides nothing
        host = Host(tmp_path / str(seam))
        host.folder.mkdir()
        host.write("app.log", first)
        await host.ship()
        (host.folder / "app.log").write_bytes(second)
        await host.scan()
        with amid([(seam, partial(host.write, "app.log.1", b"3\n"))]):
            await host.scan()
        (host.folder / "app.log").unlink()
        for _ in range(3):
            await host.ship()
        await host.follower.close()

        assert {first, second} <= set(contents(host.blocks, []).values())
        assert len(host.reported(NoticeKind.TRUNCATED)) == 1


async def test_a_longer_run_that_begins_alike_is_shipped_and_not_named_as_the_same(
    host: Host,
) -> None:
    head = HEAD * (ContentHash.MOST // len(HEAD) + 1)
    runs = [head + b"%d\n" % n * 100 * n for n in (1, 2)]
    host.write("app.log", runs[0])
    await host.ship()
    (host.folder / "app.log").write_bytes(runs[1])
    await host.gather()
    await host.ship()

    assert list(contents(host.blocks, []).values()) == runs
    assert host.reported(NoticeKind.CONTENT) == []


@pytest.mark.parametrize("less", [0, 10])
@pytest.mark.parametrize("allocated", [40, 20_000])
async def test_every_run_is_shipped_though_its_file_was_allocated_beforehand(
    host: Host, allocated: int, less: int
) -> None:
    runs = [HEAD + b"%d" % n * 20 + b"\n" + TAIL for n in range(4)]
    for number, run in enumerate(runs):
        await write_again(host, run + bytes(allocated - number * less))

    assert list(contents(host.blocks, []).values()) == runs
