"""Closed segments: compressed and removed, also if the process is killed at any step."""

import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from nats_logship.app.faults import VARIABLE
from receiver.storage import rotation
from receiver.storage.rows import FileRow, SegmentRow
from receiver.storage.segments import Limits, SegmentCleaner, SegmentPolicy, choose_excess
from tests.receiver.stored import add, age, begun
from tests.support.received import read_segment

NOW = 1_800_000_000_000_000_000
DAY = 86_400_000_000_000


@pytest.fixture
def policy(tmp_path: Path) -> SegmentPolicy:
    for name in ("out", "state"):
        (tmp_path / name).mkdir()
    begun(tmp_path / "state", tmp_path / "out").close()
    return SegmentPolicy(tmp_path / "out", tmp_path / "state", "zstd")


def clean(policy: SegmentPolicy, now: int = NOW, **changes: Any) -> None:
    SegmentCleaner(replace(policy, **changes), lambda: now).clean(never)


def make(policy: SegmentPolicy, *numbers: int, live: str = "web01.log") -> tuple[str, ...]:
    names = tuple(rotation.name_segment(live, number) for number in numbers)
    for name in names:
        (policy.output / name).write_bytes(name.encode() * 1000)
    (policy.output / live).write_bytes(b"live\n")
    add(policy.state, policy.output, live, *names)
    return names


def names_in(policy: SegmentPolicy) -> list[str]:
    return sorted(path.name for path in policy.output.iterdir())


def never() -> bool:
    return False


_CLEAN = """
import pickle, sys
from receiver.storage.segments import SegmentCleaner
SegmentCleaner(pickle.loads(bytes.fromhex(sys.argv[1])), lambda: 0).clean(lambda: False)
"""


@pytest.mark.parametrize(
    ("point", "passes", "later", "suffix"),
    [
        ("compressing", 1, "gzip", ".gz"),
        ("compressing", 1, "none", ""),
        ("compressed", 1, "gzip", ".zst"),
        ("compressed", 1, "none", ".zst"),
        ("deleted", 0, "none", ".zst"),
    ],
)
def test_after_a_kill_at_any_point_the_next_call_finishes(
    policy: SegmentPolicy, tmp_path: Path, point: str, passes: int, later: str, suffix: str
) -> None:
    _, second = make(policy, 1, 2)
    policy = replace(policy, limits=Limits(1))
    (tmp_path / point).write_bytes(b"." * passes)
    command = [sys.executable, "-c", _CLEAN, pickle.dumps(policy).hex()]
    killed = subprocess.run(command, env={**os.environ, VARIABLE: str(tmp_path)}, check=False)

    clean(policy, compress=later)

    assert killed.returncode == -signal.SIGKILL
    assert names_in(policy) == ["web01.log", second + suffix]
    assert read_segment(policy.output / (second + suffix)) == second.encode() * 1000
    with begun(policy.state, policy.output) as store:
        (row,) = store.list_segments_of("web01.log")
        assert (row.path, row.compressed) == (second, suffix)


def test_a_clock_that_is_ahead_of_every_line_removes_nothing_more(policy: SegmentPolicy) -> None:
    names = make(policy, *range(1, 8))
    for number, name in enumerate(names):
        age(policy.state, policy.output, name, NOW - (7 - number) * DAY)
    age(policy.state, policy.output, "web01.log", NOW - DAY // 2)

    for now in (NOW, NOW + 400 * DAY):
        clean(policy, now, compress="none", limits=Limits(age=3 * DAY))
        assert names_in(policy) == ["web01.log", *names[4:]], now


@pytest.mark.parametrize(("compress", "suffix"), [("zstd", ".zst"), ("gzip", ".gz")])
def test_a_compressed_segment_keeps_lines_mode_owner_and_time(
    policy: SegmentPolicy, compress: str, suffix: str
) -> None:
    (name,) = make(policy, 1)
    (policy.output / name).chmod(0o604)
    os.utime(policy.output / name, ns=(NOW, NOW - DAY))
    owner = (4321, 1234) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(policy.output / name, *owner)

    clean(policy, compress=compress)

    packed = policy.output / (name + suffix)
    assert names_in(policy) == ["web01.log", packed.name]
    assert read_segment(packed) == name.encode() * 1000
    found = packed.stat()
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o604, NOW - DAY)
    assert (found.st_uid, found.st_gid) == owner


def test_without_space_a_segment_is_compressed_later_and_logged_once(
    policy: SegmentPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    names = make(policy, 1, 2)
    (policy.output / names[0]).write_bytes(os.urandom(300_000))  # as large as its compressed form
    cleaner = SegmentCleaner(policy, lambda: NOW)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        cleaner.clean(never)
        cleaner.clean(never)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert names_in(policy) == ["web01.log", names[0], f"{names[1]}.zst"]
    assert caplog.text.count("cannot be compressed") == 1
    cleaner.clean(never)
    assert names_in(policy) == ["web01.log", f"{names[0]}.zst", f"{names[1]}.zst"]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("web01.log.000001.zst", ["web01.log.000001", "web01.log.000001.zst"]),
        (".web01.log.000001.new", ["web01.log.000001.zst"]),
    ],
)
def test_a_link_with_the_name_of_the_compressed_form_costs_no_line(
    policy: SegmentPolicy, tmp_path: Path, name: str, left: list[str]
) -> None:
    (closed,) = make(policy, 1)
    lines, victim = (policy.output / closed).read_bytes(), tmp_path / "victim"
    victim.write_bytes(precious := zstandard.compress(b"precious"))
    (policy.output / name).symlink_to(victim)

    clean(policy)

    assert victim.read_bytes() == precious
    assert names_in(policy) == ["web01.log", *left]
    assert read_segment(policy.output / left[0]) == lines


def test_only_empty_folders_are_removed(policy: SegmentPolicy) -> None:
    for folder in ("gone/a", "kept", "strange"):
        make_day(policy, folder, "2026-11-01", NOW - 20 * DAY)
    make_day(policy, "kept", "2026-11-21", NOW - DAY)
    (policy.output / "strange/notes.txt").write_bytes(b"mine\n")

    clean(policy, compress="none", limits=Limits(age=10 * DAY))

    found = (path.relative_to(policy.output) for path in policy.output.rglob("*"))
    left = ["kept", "kept/2026-11-21.log", "strange", "strange/notes.txt"]
    assert sorted(map(str, found)) == left


def make_day(policy: SegmentPolicy, folder: str, day: str, moment: int) -> None:
    """Make a file of a past day: it is a closed segment under its own name."""
    path = f"{folder}/{day}.log"
    (policy.output / path).parent.mkdir(parents=True, exist_ok=True)
    (policy.output / path).write_bytes(b"a line\n")
    put_day(policy, folder, day, moment)
    with begun(policy.state, policy.output) as store, store.transaction():
        store.put_segments([SegmentRow(path, path, 1, day, 7, moment, "", 1)])


def put_day(policy: SegmentPolicy, folder: str, day: str, moment: int) -> None:
    """Put the row of a file of a day; without a moment a batch has only announced it."""
    row = FileRow(f"{folder}/{day}.log", "web01", "", day, last_line=moment)
    with begun(policy.state, policy.output) as store, store.transaction():
        store.put_files([row])


@pytest.mark.parametrize(
    ("compress", "limits", "suffixes"),
    [("zstd", Limits(), [".zst"]), ("none", Limits(size=1), [])],
    ids=["compressed", "deleted"],
)
def test_a_closed_day_is_compressed_and_deleted_once_a_later_day_has_lines(
    policy: SegmentPolicy, compress: str, limits: Limits, suffixes: list[str]
) -> None:
    make_day(policy, "web01", "2026-11-20", NOW)
    day = policy.output / "web01"
    put_day(policy, "db", "2026-11-21", 0)

    clean(policy, NOW + DAY, compress=compress, limits=limits)
    assert [path.name for path in day.iterdir()] == ["2026-11-20.log"]

    put_day(policy, "db", "2026-11-21", NOW + 1)
    clean(policy, NOW + DAY, compress=compress, limits=limits)
    left = [path.name for path in day.iterdir()] if day.exists() else []
    assert left == [f"2026-11-20.log{suffix}" for suffix in suffixes]


def test_nothing_is_forgotten_without_the_output(policy: SegmentPolicy, tmp_path: Path) -> None:
    names = make(policy, 1, 2)
    policy.output.rename(tmp_path / "away")
    policy.output.mkdir()

    clean(policy, limits=Limits(1))

    policy.output.rmdir()
    (tmp_path / "away").rename(policy.output)
    clean(policy, compress="none", limits=Limits(1))
    assert names_in(policy) == ["web01.log", names[1]]


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_a_hosts_excess_is_removed_before_anothers_old_file(
    policy: SegmentPolicy, compress: str
) -> None:
    (old,) = make(policy, 1, live="b.log")
    new = make(policy, 1, 2, 3, live="a.log")
    for number, name in enumerate((old, *new)):
        (policy.output / name).write_bytes(os.urandom(10_500))
        age(policy.state, policy.output, name, NOW - (9 - number) * DAY)

    # by the sizes in the store, which were larger, another file would have to go
    limits = Limits(number=1, size=22_000)
    clean(policy, compress=compress, limits=limits)

    suffix = rotation.SUFFIXES.get(compress, "")
    assert names_in(policy) == ["a.log", f"{new[2]}{suffix}", "b.log", f"{old}{suffix}"]


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


def sort_key(one: SegmentRow) -> tuple[str, int]:
    """Return what segments of one file are sorted by."""
    return one.day, one.number


def age_of(one: SegmentRow, found: list[SegmentRow]) -> tuple[int, str, str, int]:
    """Return what segments are sorted by: none is older than one before it of its file."""
    before = [s for s in found if s.live == one.live and sort_key(s) <= sort_key(one)]
    return max(s.last_line for s in before), one.live, *sort_key(one)


def naively_left(found: list[SegmentRow], limits: Limits, now: int) -> list[SegmentRow]:
    """Return what stays: by number, then by age, then by size, one segment after the other."""
    left = found
    if limits.number:
        files = [sorted((s for s in found if s.live == live), key=sort_key) for live in "abc"]
        left = [one for file in files for one in file[-limits.number :]]
    left = [one for one in left if not limits.age or age_of(one, left)[0] >= now - limits.age]
    left = sorted(left, key=lambda one: age_of(one, left))
    while limits.size and sum(one.size for one in left) > limits.size:
        del left[0]
    return left


ONE_OLD = segment("b", 1, 1, 10, "")
THREE_NEW = [segment("a", number, number + 1, 10, "") for number in (1, 2, 3)]


@given(segments, limits_of_all)
@example([ONE_OLD, *THREE_NEW], Limits(number=1, size=32))
def test_exactly_what_exceeds_limits_is_removed(found: list[SegmentRow], limits: Limits) -> None:
    gone = choose_excess(found, limits, 100)

    left = naively_left(found, limits, 100)
    assert sorted(gone) == sorted(one for one in found if one not in left)
    for live in "abc":
        removed = [sort_key(one) for one in gone if one.live == live]
        kept = [sort_key(one) for one in left if one.live == live]
        assert removed == sorted(removed)
        assert not removed or not kept or removed[-1] < min(kept), "none out of the middle"
