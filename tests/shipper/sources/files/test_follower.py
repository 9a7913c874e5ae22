"""Following files: budgets, unfinished and over-long lines, rotations, truncations, reports."""

import asyncio
import gzip
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor, Positions
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.block import Block
from shipper.sources.files.identity import fingerprint
from shipper.sources.files.records import RecordRules
from shipper.sources.notices import NoticeKind
from tests.shipper.host import SECOND, Host
from tests.shipper.shipped import contents, origins
from tests.shipper.sources.files.conftest import MakeHost

DAY = 86_400 * SECOND


async def test_a_gathering_keeps_to_its_budget_and_is_fair(make_host: MakeHost) -> None:
    host = make_host("*.log", block_size=1000)
    host.write("flood.log", b"x" * 99 + b"\n")
    for _ in range(10):
        host.write("flood.log", (b"x" * 99 + b"\n") * 1000)
    host.write("quiet.log", b"quiet\n")
    await host.scan()

    blocks = await host.follower.gather(10_000)

    assert sum(len(block.lines) for block in blocks) <= 12_000
    assert b"quiet\n" in [block.lines for block in blocks]


async def test_a_missing_file_is_reported_once_and_again_when_it_goes_missing_again(
    host: Host,
) -> None:
    await host.scan()
    await host.scan()
    assert len(host.reported(NoticeKind.MISSING)) == 1

    host.write("app.log", b"1\n")
    await host.ship()
    (host.folder / "app.log").unlink()
    await host.scan()

    assert len(host.reported(NoticeKind.MISSING)) == 2


@pytest.mark.parametrize("budget", [500, 3000, 100_000])
@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_comes_between_the_pieces_of_an_over_long_line(
    make_host: MakeHost, budget: int, *, restarts: bool
) -> None:
    host = make_host("*.log", block_size=100, max_line=300)
    for name in ("a.log", "b.log", "c.log"):
        host.write(name, b"short\n" * 100 + name[:1].encode() * 4000 + b"\n" + b"short\n" * 100)
    await host.scan()

    while blocks := await host.follower.gather(budget):
        host.blocks += blocks
        if restarts:
            await host.restart()
            await host.scan()

    for name in (b"a", b"b", b"c"):
        assert name * 4000 + b"\n" in host.shipped


async def test_an_over_long_line_waits_for_its_end_and_keeps_no_other_file_waiting(
    make_host: MakeHost,
) -> None:
    host = make_host("*.log", block_size=100, max_line=300)
    host.write("a.log", b"a" * 1000)
    host.write("b.log", b"short\n")
    assert await host.ship() == b"short\n"

    host.write("a.log", b"a" * 1000 + b"\n" + b"b" * 1000)
    host.write("b.log", b"shorter\n")
    assert b"a" * 2000 + b"\n" in await host.ship()
    assert b"bb" not in host.shipped
    assert [
        state.unfinished for state in host.follower.files() if state.path.endswith("a.log")
    ] == [1000]

    host.move("a.log", "a.log.1")
    assert await host.ship() == b""
    host.later += 6 * SECOND
    assert await host.ship() == b"b" * 1000


async def test_an_endless_line_is_searched_in_parts_and_other_files_are_read_between(
    make_host: MakeHost,
) -> None:
    host = make_host("*.log", block_size=100, max_line=300)
    host.write("a.log", b"a" * 1_000_000)
    host.write("b.log", b"first\n")
    assert await host.ship() == b"first\n"

    for _ in range(10):
        assert await host.follower.gather(10_000) == []
        assert host.follower.poll_in == 0
    host.write("b.log", b"meanwhile\n")
    for _ in range(2):
        host.blocks += await host.follower.gather(10_000)
    assert host.shipped == b"first\nmeanwhile\n"
    host.write("a.log", b"\n")
    while not (blocks := await host.follower.gather(10_000)):
        assert host.follower.poll_in == 0
    host.blocks += blocks
    await host.gather()

    assert host.shipped == b"first\nmeanwhile\n" + b"a" * 1_000_000 + b"\n"
    assert host.follower.poll_in > 0


async def test_bytes_that_were_seen_and_lost_to_a_truncation_are_counted(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"unread\n")
    await host.scan()
    os.truncate(host.folder / "app.log", 0)
    await host.ship()

    assert [notice.lost for notice in host.reported(NoticeKind.TRUNCATED)] == [7]


async def test_a_file_that_begins_as_before_and_goes_on_otherwise_is_read_again(host: Host) -> None:
    banner = (b"x" * 99 + b"\n") * 20
    host.write("app.log", banner + b"1\n" * 40)
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", banner + b"2\n" * 60)
    await host.restart()

    await host.ship()

    assert host.shipped == banner + b"1\n" * 40 + banner + b"2\n" * 60


@pytest.mark.parametrize(
    ("name", "runs"), [("other.log", False), ("app.log.1.gz", False), ("app.log.1.gz", True)]
)
async def test_an_empty_file_is_not_taken_for_another_one_that_got_its_inode(
    tmp_path: Path, make_host: MakeHost, name: str, *, runs: bool
) -> None:
    host = make_host("*.log", open_files=0)  # or its inode could not be reused
    host.write("app.log", b"one line\n" * 9)
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"")
    await host.ship()
    data = gzip.compress((tmp_path / "app.log.1").read_bytes())
    (tmp_path / "app.log.1").unlink()
    (tmp_path / "app.log").write_bytes(data if name.endswith(".gz") else b"other\n")
    host.move("app.log", name)  # as good as a file that was made when the empty one was gone

    if not runs:
        await host.restart_with_saved_positions()
    shipped = await host.ship()

    labels = [block.section.path for block in host.blocks[1:]]
    expected = [] if name.endswith(".gz") else [str(tmp_path / name)]
    assert labels == expected
    assert shipped == b"other\n" * len(expected)


COPIES = {
    "of a short file that is rotated": (
        (
            "write app.log 1|; ship; write app.log.bak 1|; ship; move app.log app.log.1; "
            "write app.log 2|; ship; ship"
        ),
        "1|2|",
    ),
    "of a file whose successor begins alike": (
        (
            "write app.log banner|; ship; write app.log.1 ban; scan; "
            "write app.log late|; ship; "
            "write app.log.1 ner|; cut app.log; write app.log banner|2|; scan; "
            "move app.log.1 app.log.2; write app.log.1 banner|2|; cut app.log; write app.log 3|; "
            "scan; ship"
        ),
        "banner|late|banner|2|3|",
    ),
    "of the last of the files that began alike": (
        (
            "write app.log banner|; ship; cut app.log; ship; write app.log banner|1|; ship; "
            "write app.log.1 banner|1|2|; cut app.log; write app.log 3|; ship"
        ),
        "banner|banner|1|2|3|",
    ),
}


@pytest.mark.parametrize("program", COPIES)
async def test_a_copy_is_read_only_behind_what_was_read_of_its_original(
    host: Host, program: str
) -> None:
    steps, expected = COPIES[program]
    for step in steps.split("; "):
        match step.split():
            case "write", name, text:
                host.write(name, text.replace("|", "\n").encode())
            case "cut", name:
                os.truncate(host.folder / name, 0)
            case "move", name, to:
                host.move(name, to)
            case ["scan"]:
                await host.scan()
            case ["ship"]:
                await host.ship()

    assert host.shipped.decode() == expected.replace("|", "\n")


async def test_the_copy_of_an_unread_file_that_grew_and_was_truncated_is_read(
    host: Host,
) -> None:
    host.write("app.log", b"1\n")
    await host.scan()
    host.write("app.log.1", b"1\n")
    os.utime(host.folder / "app.log.1", (1, 1))
    await host.scan()
    host.write("app.log", b"in no copy\n")
    await host.scan()
    os.truncate(host.folder / "app.log", 0)
    await host.scan()
    await host.ship()

    assert host.shipped == b"1\n"


async def test_siblings_that_a_glob_shows_are_shipped_oldest_first(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("app.log*")
    for number, name in enumerate(["app.log.2", "app.log.1", "app.log"]):
        host.write(name, b"%d\n" % number)
        os.utime(tmp_path / name, ns=(number * SECOND, number * SECOND))
    host.write("app.log.3.lz4", b"\x04\x22")

    assert await host.ship() == b"0\n1\n2\n"
    assert [notice.path for notice in host.reported(NoticeKind.REFUSED)] == [
        str(tmp_path / "app.log.3.lz4")
    ]


# rules that no random program needs


async def test_a_copy_is_none_of_what_another_agent_found_and_did_not_read(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.scan()
    (found,) = host.follower.start_cursors(())
    await host.gather()
    (read,) = host.cursors()
    await host.follower.close()
    host.follower = host.start([replace(found, file="of another agent"), read])
    await host.scan()
    host.write("app.log.1", b"1\n")

    await host.ship()

    assert host.shipped == b"1\n"


async def test_a_file_rotated_while_the_agent_was_down_is_new_although_none_was_read_before(
    host: Host,
) -> None:
    host.write("app.log", b"1\n")
    await host.scan()
    (host.folder / "app.log").unlink()
    host.write("app.log", b"2\n")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"3\n")
    await host.restart_with_saved_positions()

    assert await host.ship() == b"2\n3\n"


@pytest.mark.parametrize("step", [86_400, -86_400], ids=["ahead", "back"])
async def test_setting_the_clock_ends_no_wait_and_prolongs_none(
    make_host: MakeHost, step: int
) -> None:
    records = RecordRules("start:^[0-9]", timeout=2 * SECOND, lines=20)
    host = make_host("*.log", hold=10.0, records=records)
    host.follower.stored = lambda _: 0
    for name in ("app.log", "deleted.log", "record.log"):
        host.write(name, b"1 first\n unfinished")
    host.write("record.log", b"\n")
    await host.ship()
    host.move("app.log", "app.log.1")
    (host.folder / "deleted.log").unlink()
    host.write("app.log", b"2 second\n3")
    await host.ship()

    shipped, gone = [], []
    for _ in range(3):
        host.set_clock(step)
        await host.ship()
        shipped.append(host.shipped)
        gone.append(len(host.reported(NoticeKind.GONE)))
        host.later += 6 * SECOND

    assert shipped[0] == b""
    assert shipped[1].count(b"1 first\n unfinished") == 3
    assert b"unfinished2 second\n" in shipped[1], "the successor waits"
    assert gone == [0, 0, 1]


async def test_setting_the_clock_ahead_makes_no_file_be_forgotten(make_host: MakeHost) -> None:
    host = make_host("logs/*.log", hold=0.0)
    host.follower.stored = lambda _: 0
    (host.folder / "logs").mkdir()
    host.write("logs/app.log", b"1\n")
    await host.ship()
    host.move("logs", "unmounted")
    for _ in range(2):
        await host.scan()
        host.later += SECOND
    host.set_clock(8 * 86_400)
    (host.folder / "logs").mkdir()
    await host.scan()
    (host.folder / "logs").rmdir()
    host.move("unmounted", "logs")

    assert await host.ship() == b""


async def restart_after_8_days(host: Host, acknowledged: Acknowledged) -> None:
    """Ship a line of audit/audit.log; restart 8 days later, while its disk is not mounted."""
    (host.folder / "audit").mkdir()
    host.write("audit/audit.log", b"1\n")
    await host.ship()
    await host.follower.close()
    known = [replace(one, seen=one.seen - 8 * DAY) for one in host.cursors()]
    acknowledged.positions = Positions({one.file: one for one in known})
    host.follower = host.start(known)
    host.follower.stored = acknowledged.position
    host.move("audit", "unmounted")
    await host.scan()
    await acknowledged.forget_gone(host.follower, host.clock())


async def test_a_quiet_file_whose_disk_is_mounted_late_is_not_shipped_again(
    make_host: MakeHost,
) -> None:
    host = make_host("audit/audit.log")
    acknowledged = Acknowledged(host.steady)
    await restart_after_8_days(host, acknowledged)
    for passed in (60 * SECOND, 6 * DAY):
        host.later += passed
        await host.scan()
        await acknowledged.forget_gone(host.follower, host.clock())

    host.move("unmounted", "audit")
    again = await host.ship()
    await acknowledged.forget_gone(host.follower, host.clock())
    host.write("audit/audit.log", b"2\n")

    assert again == b""
    assert await host.ship() == b"2\n"


def hide_in_a_loop_of_links(host: Host) -> None:
    (host.folder / "audit").symlink_to("audit")


@pytest.mark.parametrize(
    ("hide", "is_kept"),
    [
        pytest.param(lambda _: None, False, id="gone"),
        pytest.param(hide_in_a_loop_of_links, True, id="cannot be seen"),
        pytest.param(lambda host: host.move("unmounted", "audit"), True, id="not selected"),
    ],
)
async def test_a_position_is_forgotten_if_its_file_was_gone_for_7_days_of_the_steady_clock(
    make_host: MakeHost, hide: Callable[[Host], None], *, is_kept: bool
) -> None:
    host = make_host("audit/audit.log")
    acknowledged = Acknowledged(host.steady)
    await restart_after_8_days(host, acknowledged)
    await host.retarget("other.log")
    await host.scan()
    hide(host)

    host.later += 7 * DAY + SECOND
    await acknowledged.forget_gone(host.follower, host.clock())

    assert bool(acknowledged.positions.files) == is_kept


async def rotate_100_times(host: Host) -> Acknowledged:
    """Rotate logs/app.log after each of 100 lines; return the positions, all lines being stored."""
    acknowledged = Acknowledged(host.steady)
    host.follower.stored = acknowledged.position
    (host.folder / "logs").mkdir()
    for number in range(100):
        host.write("logs/app.log", b"%d\n" % number)
        await host.ship()
        host.move("logs/app.log", f"logs/app.log.{100 - number}")
    for origin in origins(host.blocks):
        acknowledged.advance(origin, 1, "LOGS")
    return acknowledged


async def restart(host: Host, acknowledged: Acknowledged) -> None:
    await host.follower.close()
    host.follower = host.start(list(acknowledged.positions.files.values()))
    host.follower.stored = acknowledged.position


async def scan_for_a_minute(host: Host, acknowledged: Acknowledged) -> None:
    for _ in range(2):
        await host.scan()
        acknowledged.add_found(host.follower)
        await acknowledged.forget_gone(host.follower, host.clock())
        host.later += 60 * SECOND


async def require_nothing_new(host: Host, acknowledged: Acknowledged) -> None:
    """Assert that all files are followed again, and nothing is shipped, also after a restart."""
    assert await host.ship() == b""
    acknowledged.add_found(host.follower)
    await restart(host, acknowledged)
    assert await host.ship() == b""
    assert len(host.follower.files()) == 100


@pytest.mark.parametrize("days", [0, 8])
async def test_rotated_files_that_are_not_selected_for_a_while_are_not_shipped_again(
    make_host: MakeHost, days: int
) -> None:
    host = make_host("logs/app.log*")
    acknowledged = await rotate_100_times(host)
    await host.retarget("other.log")
    await scan_for_a_minute(host, acknowledged)
    if days:
        host.later += days * DAY
        await scan_for_a_minute(host, acknowledged)
    await host.retarget("logs/app.log*")

    await require_nothing_new(host, acknowledged)


async def test_rotated_files_whose_disk_is_mounted_late_are_not_shipped_again(
    make_host: MakeHost,
) -> None:
    host = make_host("logs/app.log*")
    acknowledged = await rotate_100_times(host)
    await restart(host, acknowledged)
    host.move("logs", "unmounted")
    await scan_for_a_minute(host, acknowledged)
    host.move("unmounted", "logs")

    await require_nothing_new(host, acknowledged)


async def test_positions_of_deleted_files_are_forgotten_though_others_have_their_inodes(
    host: Host,
) -> None:
    acknowledged, live = Acknowledged(host.steady), host.folder / "app.log"
    host.follower.stored = acknowledged.position
    live.write_bytes(b"1\n")
    identity = Identity(live.stat().st_ino, 2, fingerprint(b"0\n"), 2, fingerprint(b"0\n"))
    old = {f"f{n}": Cursor(f"f{n}", f"{live}", 2, identity, n) for n in range(100)}
    (host.folder / "other").touch()
    other = identity._replace(inode=(host.folder / "other").stat().st_ino)
    old |= {f"f{n}": Cursor(f"f{n}", f"{live}", 2, other, n) for n in range(100, 200)}
    acknowledged.positions = Positions(old)
    for _ in range(2):
        await host.ship()
        acknowledged.add_found(host.follower)
        host.later += 8 * DAY
        await acknowledged.forget_gone(host.follower, host.clock())

    assert acknowledged.positions.files.keys() == {"f199", *host.positions.files}


async def test_an_agent_that_often_restarts_keeps_a_bounded_number_of_old_positions(
    tmp_path: Path, host: Host
) -> None:
    identity = Identity(0, 0, "", 0, "")
    acknowledged = Acknowledged(host.steady)
    acknowledged.positions = Positions(
        {f"f{n}": Cursor(f"f{n}", f"{tmp_path}/pod-{n}.log", 5, identity, n) for n in range(5100)}
    )
    await host.scan()

    await acknowledged.forget_gone(host.follower, host.clock())

    assert acknowledged.positions.files.keys() == {f"f{n}" for n in range(100, 5100)}


writes = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"\n", b"\r\n", b"\0\n", b"x" * 16 + b"\n", b"y" * 45, b"\xff\xfe\x85\n"]),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(writes, st.integers(1, 50), st.integers(1, 50), st.lists(st.integers(1, 120), min_size=1))
def test_any_bytes_in_any_chunks_give_the_same_bytes(
    parts: list[bytes], block_size: int, max_line: int, budgets: list[int]
) -> None:
    async def follow(folder: Path) -> list[Block]:
        host = Host(folder, block_size=block_size, max_line=max_line)
        host.write("app.log", b"")
        await host.scan()
        for number, part in enumerate(parts):
            host.write("app.log", part)
            await host.scan()
            host.blocks += await host.follower.gather(budgets[number % len(budgets)])
            if number % 5 == 4:
                await host.restart()
        host.write("app.log", b"\n")
        await host.ship()
        await host.follower.close()
        return host.blocks

    with tempfile.TemporaryDirectory() as folder:
        blocks = asyncio.run(follow(Path(folder)))
    faults: list[str] = []
    assert list(contents(blocks, faults).values()) == [b"".join(parts) + b"\n"]
    assert faults == []
    assert all(block.section.lines == block.lines.count(b"\n") for block in blocks)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ["one\ntwo\nthree\n", "one\ntwo"])
async def test_the_rest_of_a_rotated_file_is_shipped_without_a_byte_that_is_not_in_it(
    host: Host, encoding: str, text: str
) -> None:
    for number in range(2):
        host.write("app.log", text.encode(encoding))
        await host.ship()
        if number:
            host.move("app.log.1", "app.log.2")
        host.move("app.log", "app.log.1")
    await host.ship_out()

    assert host.shipped == 2 * text.encode(encoding)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_live_file_that_is_called_like_a_rotated_one_goes_on_in_its_line(
    make_host: MakeHost, *, restarts: bool
) -> None:
    host = make_host("job*")
    for number in range(3):
        for name in ("job", "job.1", "job.2"):
            host.write(name, b"%s: line %d, " % (name.encode(), number))
        await host.ship_out()
        if restarts:
            await host.restart_with_saved_positions()
        for name in ("job", "job.1", "job.2"):
            host.write(name, b"end\n")
        await host.ship()

    faults: list[str] = []
    assert sorted(contents(host.blocks, faults).values()) == sorted(
        b"".join(b"%s: line %d, end\n" % (name, number) for number in range(3))
        for name in (b"job", b"job.1", b"job.2")
    )
    assert faults == []


async def test_lines_of_a_live_file_called_like_a_rotated_one_are_whole_once_it_has_grown(
    make_host: MakeHost,
) -> None:
    host = make_host("job*")
    for name in ("job", "job.1"):
        host.write(name, b"first of %s\n" % name.encode())
    await host.ship()
    for number in range(3):
        host.write("job.1", b"%d is " % number)
        await host.ship_out()
        host.write("job", b"another\n")
        await host.ship_out()
        host.write("job.1", b"whole\n")
        await host.ship()

    assert [block.lines for block in host.blocks if b" is" in block.lines] == [
        b"%d is whole\n" % number for number in range(3)
    ]


@pytest.mark.parametrize("names", [["a.log"], ["a.log", "b.log"]])
async def test_a_new_file_with_inode_and_content_of_a_deleted_one_is_shipped(
    make_host: MakeHost, names: list[str]
) -> None:
    host, inodes = make_host("*.log"), list[int]()
    for number in range(6):
        path = host.folder / names[number % len(names)]
        host.write(path.name, b"backup OK\n")
        inodes.append(path.stat().st_ino)
        await host.ship_out()
        path.unlink()
        await host.ship_out()

    assert host.shipped == b"backup OK\n" * 6
    assert {block.section.path for block in host.blocks} == {str(host.folder / n) for n in names}
    if len(set(inodes)) == 6:
        pytest.skip("this file system does not use inodes again")
