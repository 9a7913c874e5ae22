"""What users of other shippers complain about most, and the tests that say it does not happen here.

Numbers in the first column are those of the survey that these come from; 12 and 13 are a receiver's pains. Threads are
of the repositories that the short names stand for: vectordotdev/vector, elastic/beats, fluent/fluent-bit,
rsyslog/rsyslog, open-telemetry/opentelemetry-collector-contrib (otel), grafana/loki. Tests that are not in this
file stand in the one that is named, here or in a folder below.

| | pain | threads | test |
|---|---|---|---|
| 1 | an inode is used again, and the new file is skipped up to the old offset | vector#23076, vector#25079, beats#1341, fluent-bit#8025, rsyslog#2659 | test_a_file_on_an_inode_that_was_used_before_is_read_whole |
| 1 | | rsyslog#4875 | test_follower_truncation.py::test_a_file_recreated_on_the_same_inode_is_another_file |
| 2 | lines are lost at rotation, fast or while the agent is down | beats#1956, fluent-bit#2110, otel#35137, rsyslog#4797 | test_follower_rotation.py::test_files_renamed_twice_between_two_looks_are_all_shipped_oldest_first |
| 2 | | fluent-bit#9580, loki#8039 | test_agent_program.py::test_files_rotated_while_the_shipper_is_killed_arrive_whole_and_in_order |
| 2 | | otel#31074 | test_follower_rotation.py::test_a_writer_may_go_on_writing_to_the_renamed_file |
| 3 | copytruncate repeats, loses, or stays at the old offset | otel#43693, otel#19765, fluent-bit#375, rsyslog#3918 | test_follower_truncation.py::test_a_truncated_file_is_read_anew_under_a_new_id |
| 3 | | rsyslog#1417, loki#394 | test_follower_truncation.py::test_the_unread_rest_of_a_truncated_file_is_taken_from_its_copy |
| 3 | | fluent-bit#445 | test_follower_truncation.py::test_lines_read_between_copy_and_truncation_are_not_repeated |
| 4 | lines that were not acknowledged are skipped when a file is closed and opened again | beats#50738, beats#50840, beats#51675 | test_lines_that_were_read_and_not_acknowledged_are_read_again_after_a_file_was_closed |
| 4 | | beats#23417 | test_left_out_lines.py::test_a_long_tail_that_is_left_out_is_passed_over_once_and_nothing_is_behind |
| 5 | deleted files are held open until the disk is full | vector#22273, vector#11742, loki#3914 | test_follower_rotation.py::test_a_deleted_file_is_read_to_its_end_and_let_go |
| 5 | | vector#3440 | test_forgetting.py::test_memory_stays_flat_through_hundreds_of_rotations_and_passing_files |
| 6 | many files cost processor and descriptors | otel#27404, vector#3567, vector#26332 | test_a_thousand_idle_files_cost_nothing_when_one_is_busy |
| 6 | | vector#14818, loki#15115 | test_follower.py::test_few_descriptors_are_enough_for_many_files |
| 7 | the registry grows, is written all the time, makes the start slow | beats#16076, beats#13140 | test_positions_of_many_thousand_files_are_read_in_a_moment |
| 7 | | beats#30279 | test_keeper.py::test_unchanged_positions_are_not_written_again |
| 7 | | beats#45600, rsyslog#4186 | test_forgetting.py::test_a_cursor_is_kept_for_7_days |
| 8 | lines come twice after a restart or a rotation | beats#36541, fluent-bit#1330, vector#17240 | test_agent_program.py::test_a_shipper_killed_at_random_moments_loses_nothing_and_repeats_nothing |
| 8 | | otel#40523 | test_follower_compressed.py::test_a_file_read_to_its_end_and_then_compressed_is_not_read_again |
| 8 | | vector#6761 | test_agent_program.py::test_an_older_snapshot_repeats_nothing |
| 9 | files with the same host_subject are taken for one | vector#25079, otel#19765 | test_contents.py::test_files_with_the_same_first_kilobyte_are_each_read_whole |
| 9 | small files are never read | beats#44780, vector#11537, vector#1065 | test_contents.py::test_a_small_file_is_read_at_once_and_recognised_after_a_restart |
| 10 | the end is slow, or loses lines | vector#9739, vector#5414, fluent-bit#2715 | test_agent_program.py::test_sigterm_ends_it_within_ten_seconds_while_the_broker_is_away |
| 10 | | vector#18820, fluent-bit#5960 | test_lines_that_came_before_a_stop_are_shipped_before_or_after_it_once |
| 11 | a slow output costs memory, or stalls for good | fluent-bit#8046, fluent-bit#1065, otel#46002 | test_no_more_than_two_rounds_are_read_while_the_broker_takes_nothing |
| 11 | | fluent-bit#4991 | test_publisher.py::test_a_full_stream_is_waited_for_and_goes_on_in_order |
| 14 | nobody can see what is read, how far, and what was lost | vector#23840 | test_agent_program.py::test_sigterm_saves_the_positions_that_status_shows |
| 14 | | fluent-bit#2674, otel#31886 | test_follower_truncation.py::test_bytes_that_were_seen_and_lost_to_a_truncation_are_counted |
| 15 | order is lost across a rotation | vector's `oldest_first`, rsyslog's `sortFiles` | test_follower_rotation.py::test_a_renamed_file_is_read_to_its_end_before_its_successor |
| 15 | | otel's design.md | test_agent_program.py::test_several_files_in_one_round_keep_the_order_of_each |
"""

import asyncio
import itertools
import re
import time
from pathlib import Path

import pytest

from broker.wire.message import Identity
from broker.wire.positions import Cursor, Positions
from shipper.publish.rounds import Round
from shipper.shipping import LoopOptions, Shipping
from shipper.status.meter import Meter
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection
from shipper.tail.reader import Block
from tests.shipper.host import Host
from tests.shipper.shipped import AGENT, blocks_of


def test_every_test_that_is_named_above_is_there() -> None:
    texts = {
        path.name: path.read_text("utf-8") for path in Path(__file__).parent.rglob("test_*.py")
    }
    named = re.findall(r"\| (?:(\w+\.py)::)?(test_\w+) \|", __doc__ or "")

    missing = [
        name for file, name in named if f"def {name}(" not in texts[file or Path(__file__).name]
    ]

    assert len(named) > 20
    assert missing == []


@pytest.mark.parametrize("size", [5, 23, 24, 25, 5000])
async def test_a_file_on_an_inode_that_was_used_before_is_read_whole(
    tmp_path: Path, size: int
) -> None:
    host = Host(tmp_path)
    host.write("app.log", b"twenty-three and a line\n")
    await host.ship()
    inode = (tmp_path / "app.log").stat().st_ino
    content = (b"another file " * 400)[: size - 1] + b"\n"
    (tmp_path / "app.log").write_bytes(content)  # on the same inode, with nobody looking

    await host.restart()

    assert await host.ship() == content
    assert (tmp_path / "app.log").stat().st_ino == inode
    await host.follower.close()


async def test_lines_that_were_read_and_not_acknowledged_are_read_again_after_a_file_was_closed(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, "*.log", open_files=1)
    names = ("a", "b", "c")
    for name in names:
        host.write(f"{name}.log", b"1 acknowledged\n")
    await host.ship()
    for name in names:
        host.write(f"{name}.log", b"2 in the pipeline\n")
    await host.look()
    lost = await host.follower.gather(1 << 20)  # files are closed and opened again in turns
    assert len(lost) == 3
    for name in names:
        host.write(f"{name}.log", b"3 written since\n")
    await host.look()
    assert len(await host.follower.gather(1 << 20)) == 3

    await host.restart()
    await host.ship()

    for name in names:
        shipped = [b.lines for b in host.blocks if b.section.path.endswith(f"{name}.log")]
        assert b"".join(shipped) == b"1 acknowledged\n2 in the pipeline\n3 written since\n"
    await host.follower.close()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def test_a_thousand_idle_files_cost_nothing_when_one_is_busy(tmp_path: Path) -> None:
    async def cost(folder: Path, idle: int) -> float:
        host = Host(folder, "*.log")
        for number in range(idle):
            host.write(f"{number}.log", b"idle\n")
        host.write("busy.log", b"0\n")
        await host.ship()
        rounds = []
        for _ in range(50):
            began = time.process_time()
            host.write("busy.log", b"busy\n")
            await host.follower.wait(min(5, host.follower.patience))
            await host.gather()
            rounds.append(time.process_time() - began)
        await host.follower.close()
        return sum(sorted(rounds)[:-5])  # the garbage of other tests may be collected in some

    few = await cost(made(tmp_path / "few"), 1)
    many = await cost(made(tmp_path / "many"), 1000)

    assert many < 3 * few + 0.2


def test_positions_of_many_thousand_files_are_read_in_a_moment() -> None:
    identity = Identity(7, 1024, "0123456789abcdef", 64, "0123456789abcdef")
    files = {
        f"id{n}": Cursor(f"id{n}", f"/var/log/{n}.log", n + 1, identity, n) for n in range(20_000)
    }
    data = Positions(5, "1-a", files).encode()
    began = time.process_time()

    positions = Positions.decode(data)

    assert time.process_time() - began < 2
    assert positions.files == files


class Broker:
    """Takes rounds while `takes` is set; `blocks` are those it took."""

    def __init__(self) -> None:
        self.takes = asyncio.Event()
        self.asked = asyncio.Event()
        self.blocks: list[Block] = []

    async def publish(self, round_: Round) -> int:
        self.asked.set()
        await self.takes.wait()
        self.blocks += blocks_of(round_.origin, round_.payload)
        return len(self.blocks)


def shipping(
    folder: Path, broker: Broker, positions: Positions, stopping: asyncio.Event, *, once: bool
) -> tuple[Follower, Shipping]:
    numbers = itertools.count(len(broker.blocks))
    follower = Follower(
        Selection.of([str(folder / "*.log")]),
        positions.files.values(),
        new_id=lambda: f"id{next(numbers)}",
        clock=time.time_ns,
    )
    options = LoopOptions(1 << 20, "none", once=once, patience=None)
    meter = Meter(time.time_ns)
    return follower, Shipping(follower, AGENT, broker.publish, positions, options, stopping, meter)


async def test_no_more_than_two_rounds_are_read_while_the_broker_takes_nothing(
    tmp_path: Path,
) -> None:
    content = b"".join(b"%09d of many lines\n" % number for number in range(400_000))
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_bytes(content)
    broker, stopping = Broker(), asyncio.Event()
    follower, loop = shipping(tmp_path, broker, Positions(), stopping, once=True)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(loop.run(group))
        await broker.asked.wait()
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert sum(state.offset for state in follower.states()) <= 2 * (1 << 20)
        broker.takes.set()
        await running

    assert sum(len(block.lines) for block in broker.blocks) == 2 * len(content)
    await follower.close()


async def test_lines_that_came_before_a_stop_are_shipped_before_or_after_it_once(
    tmp_path: Path,
) -> None:
    content = b"".join(b"%09d of many lines\n" % number for number in range(300_000))
    (tmp_path / "a.log").write_bytes(content)
    broker, stopping, positions = Broker(), asyncio.Event(), Positions()
    follower, loop = shipping(tmp_path, broker, positions, stopping, once=False)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(loop.run(group))
        await broker.asked.wait()
        stopping.set()
        broker.takes.set()
        await running
    await follower.close()
    before = sum(len(block.lines) for block in broker.blocks)
    assert 0 < before < len(content)

    follower, loop = shipping(tmp_path, broker, loop.positions, asyncio.Event(), once=True)
    async with asyncio.TaskGroup() as group:
        await loop.run(group)
    await follower.close()

    assert b"".join(block.lines for block in broker.blocks) == content
