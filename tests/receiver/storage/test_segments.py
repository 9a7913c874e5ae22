"""Compressing and pruning what was committed, killed at any step, and never anything that an undo needs."""

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from nats_logship.app.faults import VARIABLE
from receiver.storage import rotation
from receiver.storage.rows import SegmentRow
from receiver.storage.segments import Limits, SegmentCleaner, SegmentPolicy, choose_surplus
from tests.receiver.stored import add, age, begun
from tests.support.received import read_segment

NOW = 1_800_000_000_000_000_000
DAY = 86_400_000_000_000


@pytest.fixture
def order(tmp_path: Path) -> SegmentPolicy:
    for name in ("out", "state"):
        (tmp_path / name).mkdir()
    begun(tmp_path / "state", tmp_path / "out").close()
    return SegmentPolicy(tmp_path / "out", tmp_path / "state", "zstd")


def tidy(order: SegmentPolicy, stopped: Callable[[], bool]) -> None:
    SegmentCleaner(order, lambda: NOW).clean(stopped)


def make(order: SegmentPolicy, *numbers: int, live: str = "web01.log") -> tuple[str, ...]:
    names = tuple(rotation.closed_name(live, number) for number in numbers)
    for name in names:
        (order.output / name).write_bytes(name.encode() * 1000)
    (order.output / live).write_bytes(b"live\n")
    add(order.state, order.output, live, *names)
    return names


def names_in(order: SegmentPolicy) -> list[str]:
    return sorted(path.name for path in order.output.iterdir())


def never() -> bool:
    return False


_TIDY = """
import pickle, sys
from receiver.storage.segments import SegmentCleaner
SegmentCleaner(pickle.loads(bytes.fromhex(sys.argv[1])), lambda: 0).clean(lambda: False)
"""


@pytest.mark.parametrize(
    ("point", "passes", "later", "suffix"),
    [
        ("compressed", 1, "gzip", ".gz"),
        ("compressed", 1, "none", ""),
        ("packed", 1, "gzip", ".zst"),
        ("packed", 1, "none", ".zst"),
        ("pruned", 0, "none", ".zst"),
    ],
)
def test_killed_at_any_point_it_is_finished_by_the_next_look(
    order: SegmentPolicy, tmp_path: Path, point: str, passes: int, later: str, suffix: str
) -> None:
    _, second = make(order, 1, 2)
    order = replace(order, limits=Limits(1))
    (tmp_path / point).write_bytes(b"." * passes)
    words = [sys.executable, "-c", _TIDY, pickle.dumps(order).hex()]
    killed = subprocess.run(words, env={**os.environ, VARIABLE: str(tmp_path)}, check=False)

    tidy(replace(order, compress=later), never)

    assert killed.returncode == -signal.SIGKILL
    assert names_in(order) == ["web01.log", second + suffix]
    assert read_segment(order.output / (second + suffix)) == second.encode() * 1000
    with begun(order.state, order.output) as store:
        assert [(row.path, row.compressed) for row in store.list_segments_of("web01.log")] == [
            (second, suffix)
        ]


def test_a_clock_that_is_ahead_of_every_line_removes_no_more_than_one_that_is_right(
    order: SegmentPolicy,
) -> None:
    names = make(order, *range(1, 8))
    for number, name in enumerate(names):
        age(order.state, order.output, name, NOW - (7 - number) * DAY)
    age(order.state, order.output, "web01.log", NOW - DAY // 2)
    order = replace(order, compress="none", limits=Limits(age=3 * DAY))

    for ahead in (0, 400 * DAY):
        SegmentCleaner(order, lambda ahead=ahead: NOW + ahead).clean(never)
        assert names_in(order) == ["web01.log", *names[4:]], ahead


@pytest.mark.parametrize(("compress", "suffix"), [("zstd", ".zst"), ("gzip", ".gz")])
def test_the_compressed_form_has_the_lines_mode_owner_and_time_of_the_segment(
    order: SegmentPolicy, compress: str, suffix: str
) -> None:
    (name,) = make(order, 1)
    (order.output / name).chmod(0o604)
    os.utime(order.output / name, ns=(NOW, NOW - DAY))
    owner = (4321, 1234) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(order.output / name, *owner)

    tidy(replace(order, compress=compress), never)

    packed = order.output / (name + suffix)
    assert names_in(order) == ["web01.log", packed.name]
    assert read_segment(packed) == name.encode() * 1000
    found = packed.stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o604, NOW - DAY)
    assert (found.st_uid, found.st_gid) == owner


def test_without_room_the_segment_stays_plain_is_told_once_and_compressed_later(
    order: SegmentPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    names = make(order, 1, 2)
    (order.output / names[0]).write_bytes(os.urandom(300_000))  # as large as its compressed form
    retention = SegmentCleaner(order, lambda: NOW)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        retention.clean(never)
        retention.clean(never)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert names_in(order) == ["web01.log", names[0], f"{names[1]}.zst"]
    assert caplog.text.count("left as they are for now") == 1
    retention.clean(never)
    assert names_in(order) == ["web01.log", f"{names[0]}.zst", f"{names[1]}.zst"]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("web01.log.000001.zst", ["web01.log.000001", "web01.log.000001.zst"]),
        (".web01.log.000001.new", ["web01.log.000001.zst"]),
    ],
)
def test_a_link_planted_where_the_compressed_form_goes_costs_no_line(
    order: SegmentPolicy, tmp_path: Path, name: str, left: list[str]
) -> None:
    (closed,) = make(order, 1)
    lines = (order.output / closed).read_bytes()
    victim = tmp_path / "victim"
    victim.write_bytes(zstandard.compress(b"precious"))
    (order.output / name).symlink_to(victim)

    tidy(order, never)

    assert victim.read_bytes() == zstandard.compress(b"precious")
    assert names_in(order) == ["web01.log", *left]
    assert read_segment(order.output / left[0]) == lines


def test_a_folder_that_nothing_is_left_in_goes_and_another_stays(order: SegmentPolicy) -> None:
    for folder in ("gone/a", "kept", "strange"):
        of_a_day(order, f"{folder}/2026-11-01.log", "2026-11-01", NOW - 20 * DAY)
    of_a_day(order, "kept/2026-11-21.log", "2026-11-21", NOW - DAY)
    (order.output / "strange/notes.txt").write_bytes(b"mine\n")

    tidy(replace(order, compress="none", limits=Limits(age=10 * DAY)), never)

    found = (path.relative_to(order.output) for path in order.output.rglob("*"))
    left = ["kept", "kept/2026-11-21.log", "strange", "strange/notes.txt"]
    assert sorted(map(str, found)) == left


def of_a_day(order: SegmentPolicy, path: str, day: str, moment: int) -> None:
    """Have a file of a day that is over there: it is a closed segment under its own name."""
    (order.output / path).parent.mkdir(parents=True, exist_ok=True)
    (order.output / path).write_bytes(b"a line\n")
    with begun(order.state, order.output) as store, store.transaction():
        store.put_segments([SegmentRow(path, path, 1, day, 7, moment, "", 1)])


def test_where_the_output_is_not_mounted_nothing_is_forgotten(
    order: SegmentPolicy, tmp_path: Path
) -> None:
    names = make(order, 1, 2)
    order.output.rename(tmp_path / "away")
    order.output.mkdir()

    tidy(replace(order, limits=Limits(1)), never)

    order.output.rmdir()
    (tmp_path / "away").rename(order.output)
    tidy(replace(order, compress="none", limits=Limits(1)), never)
    assert names_in(order) == ["web01.log", names[1]]


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_the_surplus_of_one_host_is_removed_and_not_another_hosts_old_file(
    order: SegmentPolicy, compress: str
) -> None:
    (old,) = make(order, 1, live="b.log")
    new = make(order, 1, 2, 3, live="a.log")
    for number, name in enumerate((old, *new)):
        (order.output / name).write_bytes(os.urandom(10_500))
        age(order.state, order.output, name, NOW - (9 - number) * DAY)

    limits = Limits(number=1, size=32_000)
    tidy(replace(order, compress=compress, limits=limits), never)

    suffix = rotation.SUFFIXES.get(compress, "")
    assert names_in(order) == ["a.log", f"{new[2]}{suffix}", "b.log", f"{old}{suffix}"]


def test_what_is_removed_is_reckoned_by_the_sizes_on_disk(order: SegmentPolicy) -> None:
    names = make(order, 1, 2, 3)
    for number, name in enumerate(names):
        (order.output / name).write_bytes(b"x" * 1000)
        age(order.state, order.output, name, NOW - (9 - number) * DAY)

    tidy(replace(order, compress="none", limits=Limits(size=2000)), never)

    assert names_in(order) == ["web01.log", *names[1:]]


def segment(live: str, number: int, moment: int, size: int, day: str) -> SegmentRow:
    return SegmentRow(f"{live}/{day}.{number:06d}", live, number, day, size, moment, "", 0)


segments = st.lists(
    st.builds(
        segment,
        st.sampled_from("abc"),
        st.integers(1, 9),
        st.integers(0, 100) | st.sampled_from([0, 50]),
        st.integers(0, 20),
        st.sampled_from(["", "", "2026-11-20", "2026-11-21"]),
    ),
    unique_by=lambda found: found.path,
)
limits_of_all = st.builds(Limits, st.integers(0, 5), st.integers(0, 60), st.integers(0, 150))


def before(one: SegmentRow, found: list[SegmentRow]) -> list[SegmentRow]:
    """Return the segments of its live file before one, and itself."""
    place = (one.day, one.number)
    return [s for s in found if s.live == one.live and (s.day, s.number) <= place]


def age_of(one: SegmentRow, found: list[SegmentRow]) -> tuple[int, str, str, int]:
    """Return what segments are sorted by: none is older than one before it of its file."""
    moment = max(s.last_line for s in before(one, found))
    return moment, one.live, one.day, one.number


def naively_left(found: list[SegmentRow], limits: Limits, now: int) -> list[SegmentRow]:
    """Return what stays: by number, then by age, then by size, one segment after the other."""
    of_file = {live: sum(one.live == live for one in found) for live in "abc"}
    left = [
        one
        for one in found
        if not limits.number or of_file[one.live] - len(before(one, found)) < limits.number
    ]
    left = [one for one in left if not limits.age or age_of(one, left)[0] >= now - limits.age]
    left = sorted(left, key=lambda one: age_of(one, left))
    while limits.size and sum(one.size for one in left) > limits.size:
        del left[0]
    return left


ONE_OLD = segment("b", 1, 1, 10, "")
THREE_NEW = [segment("a", number, number + 1, 10, "") for number in (1, 2, 3)]


@given(segments, limits_of_all)
@example([ONE_OLD, *THREE_NEW], Limits(number=1, size=32))
def test_as_much_is_removed_as_the_limits_ask_and_nothing_more(
    found: list[SegmentRow], limits: Limits
) -> None:
    gone = choose_surplus(found, limits, 100)

    left = naively_left(found, limits, 100)
    assert sorted(gone) == sorted(one for one in found if one not in left)
    for live in "abc":
        removed = [(one.day, one.number) for one in gone if one.live == live]
        kept = [(one.day, one.number) for one in left if one.live == live]
        assert removed == sorted(removed)
        assert not removed or not kept or removed[-1] < min(kept), "none out of the middle"
