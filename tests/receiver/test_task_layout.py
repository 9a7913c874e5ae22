"""A task and the paths of its files: folders, days, modes, links, other path templates."""

import errno
import os
import re
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import zstandard

from nats_logship.app.exits import ConfigurationError, Exit
from receiver.consume.assignment import Blocked, Cause, Done, ForcedRotation
from receiver.search.received import ReceivedFiles
from receiver.storage import open_files
from receiver.storage.layout import Layout, Permissions
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.recovery import adopt
from receiver.storage.segments import Limits, SegmentCleaner, SegmentPolicy
from tests.receiver.partition import Partition, blocked, ours
from tests.support.commands import CommandFailed, run_command

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(partition: Partition) -> Partition:
    return replace(partition, template="{host}/{file}")


def test_a_path_may_be_first_a_file_and_then_a_folder_and_vice_versa(partition: Partition) -> None:
    names = ("a", "a/x", "b/x", "b")
    partition.publish(*(ours("web01", name, 0, b"%d\n" % n) for n, name in enumerate(names, 1)))
    partition.lines("web02", b"nobody says of what file")
    first = partition.receive()
    partition.publish(ours("web01", "b", 2, b"5\n"), ours("web01", "a/x", 2, b"6\n"))

    partition.receive(first.until)

    assert partition.files() == {
        "web01/var/log/a": b"1\n",
        "web01/var/log/a..%%d/x": b"2\n6\n",
        "web01/var/log/b..%%f": b"4\n5\n",
        "web01/var/log/b/x": b"3\n",
        "web02/%unnamed": b"nobody says of what file\n",
    }


@pytest.mark.parametrize("names", [("a", "a/x"), ("a/x", "a")], ids=["file", "folder"])
@pytest.mark.parametrize("is_at_once", [False, True], ids=["one by one", "at once"])
def test_a_host_blocks_nobody_by_its_path_in_another_partition(
    partition: Partition, names: tuple[str, str], is_at_once: bool
) -> None:
    for number, name in enumerate(names):
        _, payload, headers = ours("web01", name, 0, b"%d\n" % number)
        partition.publish((f"logs.p{number}.web01", payload, headers))
    first, second = (replace(partition, number=number, partitions=2) for number in range(2))
    second.claim()
    second.lines("db", b"of an honest host")

    if is_at_once:
        with second.stopped_at("announced", 1, 1) as go_on:
            first.receive()
            assert "DISK" in go_on()
    else:
        first.receive()
    second.receive()

    assert partition.files() == {
        f"web01/var/log/{names[0]}": b"0\n",
        f"web01..p1/var/log/{names[1]}": b"1\n",
        "db/%unnamed": b"of an honest host\n",
    }
    second.lines("db", b"more")
    assert second.receive(4).until == 5


@pytest.mark.parametrize("depth", ["web01", "web01/var/log"])
def test_a_folder_that_became_a_link_is_not_followed(partition: Partition, depth: str) -> None:
    partition.publish(ours("web01", "a", 0, b"1\n"))
    done = partition.receive()
    folder, elsewhere = partition.output / depth, partition.folder / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    partition.publish(ours("web01", "a", 2, b"2\n"))

    blocked(partition.run(done.until), Cause.DISK, depth, "symbolic link", "move it away")

    assert [path.read_bytes() for path in elsewhere.rglob("a")] == [b"1\n"]
    folder.unlink()
    elsewhere.rename(folder)
    partition.receive(done.until)
    assert partition.files() == {"web01/var/log/a": b"1\n2\n"}


def test_a_file_of_a_task_that_died_before_it_had_set_the_mode_gets_it_later(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    partition = replace(partition, template="{host}.log")
    partition.lines("web01", b"1")
    before = os.umask(0o077)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(open_files, "set_owner_and_mode", refuse)
            results = [partition.run(), partition.run()]
        partition.receive()
    finally:
        os.umask(before)

    assert all(isinstance(one, Blocked) for one in results)
    assert (partition.live.read_bytes(), partition.live.stat().st_mode & 0o777) == (b"1\n", 0o640)


def test_files_have_their_mode_and_owner_whatever_the_umask(partition: Partition) -> None:
    partition.publish(*(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(4)))
    group = 7 if os.geteuid() == 0 else -1
    permissions = Permissions(0o664, 0o2775, -1, group)
    before = os.umask(0o077)
    try:
        replace(partition, rotate_size=8, permissions=permissions).receive()
    finally:
        os.umask(before)

    made = [partition.output / "web01", *(partition.output / "web01").rglob("*")]
    assert len(made) == 5
    assert partition.state.stat().st_mode & 0o7777 == 0o750
    assert partition.state.stat().st_gid == os.getegid()
    for path in made:
        found = path.stat()
        assert oct(found.st_mode & 0o7777) == ("0o2775" if path.is_dir() else "0o664")
        assert group in {found.st_gid, -1}


TEMPLATE = "{date}/{host}.log"
DAY = 86_400_000_000_000


@pytest.fixture
def daily(partition: Partition) -> Partition:
    return replace(partition, template=TEMPLATE)


def clean(partition: Partition, compress: str, **limits: int) -> None:
    folders = partition.output, partition.state
    policy = SegmentPolicy(*folders, compress, Limits(**limits), Layout(TEMPLATE))
    SegmentCleaner(policy, time.time_ns).clean(lambda: False)


def paths(partition: Partition) -> list[str]:
    found = (path.relative_to(partition.output) for path in partition.output.rglob("*"))
    return sorted(str(path) for path in found if not path.parts[0].startswith("."))


@pytest.mark.parametrize("every", [timedelta(), timedelta(days=1)], ids=["never", "daily"])
def test_a_day_is_compressed_under_its_own_name_once_a_later_one_has_lines(
    daily: Partition, monkeypatch: pytest.MonkeyPatch, every: timedelta
) -> None:
    daily.lines("web01", b"one")
    daily = replace(daily, rotate_every=every)
    until = daily.receive().until
    (_, live) = paths(daily)
    now = time.time_ns()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: now + 2 * DAY)
        rotated = daily.run(until, rotation=ForcedRotation.DUE)
        clean(daily, "zstd")
    assert isinstance(rotated, Done)
    assert rotated.closed == (live,)

    daily.lines("web01", b"late")  # on the same day by the broker's clock
    late = daily.receive(until)
    clean(daily, "zstd")
    assert (daily.files(), late.notices) == ({live: b"one\nlate\n"}, ())
    found = ReceivedFiles.read(daily.output, daily.state, None)
    assert [(one.path, one.length) for one in found.parts] == [(live, 9)]

    daily.lines("web01", b"next")
    daily.move(late.until, last_time="2099-12-31T12:00:00.000Z")
    daily.receive(late.until)
    clean(daily, "zstd")
    assert [*daily.files()] == [f"{live}.zst", "2099-12-31/web01.log"]
    packed = (daily.output / f"{live}.zst").read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == b"one\nlate\n"


def test_no_line_is_written_to_a_day_before_the_last_committed_one(daily: Partition) -> None:
    daily.lines("web01", b"one")
    daily.move(1, last_time="2099-12-31T12:00:00.000Z")

    daily.receive()

    assert paths(daily) == ["2099-12-31", "2099-12-31/web01.log"]


def test_past_days_are_closed_segments_and_forgotten_when_removed(daily: Partition) -> None:
    for day in range(3, 6):
        last = daily.lines("web01", b"one")
        daily.move(last, last_time=f"2099-12-0{day}T12:00:00.000Z")
        daily.receive(last)
    known = daily.sql("SELECT path FROM segments ORDER BY path")

    clean(daily, "none", number=1)

    files = [(f"2099-12-0{day}/web01.log",) for day in (3, 4, 5)]
    assert known == files[:2]
    assert [(path,) for path in paths(daily) if path.endswith(".log")] == files[1:]
    assert daily.sql("SELECT path FROM files ORDER BY path") == files[1:]


@pytest.mark.parametrize("other", ["{host}.log", "{host}/x/{file}", "{date}/{host}/{file}"])
def test_another_path_template_is_refused_everywhere(partition: Partition, other: str) -> None:
    partition.publish(ours("web01", "a", 0, b"1\n"))
    done = partition.receive()
    before = partition.files()
    partition.publish(ours("web01", "a", 2, b"2\n"))

    changed = replace(partition, template=other)
    blocked(changed.run(done.until), Cause.STATE, "{host}/{file}", other, "--state-dir")
    with pytest.raises(ConfigurationError, match=re.escape(other)):
        changed.take_over()
    here = ["--server", partition.url, "--output", partition.output]
    here += ["--state-dir", partition.state, "--path-template", other]
    once = ["--partition=0 --once", "--partition=1 --once"]
    for command in (*once, "verify", "offsets adopt --partition=0 --yes"):
        with pytest.raises(CommandFailed, match=re.escape(other)) as failed:
            run_command("logreceiver", *command.split(), *here)
        assert "--path-template {host}/{file}" in str(failed.value)
        assert failed.value.code == Exit.CONFIGURATION
        assert str(failed.value).count("\n") == 1

    assert partition.files() == before
    partition.receive(done.until)
    assert partition.files() == {"web01/var/log/a": b"1\n2\n"}


def test_a_folder_that_has_no_files_yet_takes_any_path_template(partition: Partition) -> None:
    assert isinstance(partition.run(), Done)  # nothing is there to receive
    changed = replace(partition, template="{host}.log")
    changed.publish(ours("web01", "a", 0, b"1\n"))

    done = changed.start()

    assert changed.files() == {"web01.log": b"1\n"}
    outcome = partition.run(done.until, changed.offset().epoch)
    blocked(outcome, Cause.STATE, "{host}.log", "{host}/{file}")


BY_POD = "{host}/{namespace}/{pod}/{container}.log"


def test_files_of_containers_are_by_pod_also_after_verify_and_adoption(
    partition: Partition,
) -> None:
    by_pod = replace(partition, template=BY_POD)
    link, after = (f"containers/db-0_shop_app-{n}{'0a' * 31}.log" for n in ("1b", "2c"))
    by_pod.publish(
        *(ours("web01", name, 0, b"%d\n" % n) for n, name in enumerate((link, "syslog", after))),
        ours("web01", link, 2, b"rest"),
        ours("web01", after, 2, b"more\n"),
    )
    done = by_pod.receive()
    files = {
        "web01/shop/db-0/app.log": b"0\n2\nrest\nmore\n",
        "web01/%other/var/log/syslog": b"1\n",
    }
    assert by_pod.files() == files

    here = ["--server", by_pod.url, "--output", by_pod.output, "--state-dir", by_pod.state]
    here += ["--path-template", BY_POD]
    run_command("logreceiver", "verify", *here)
    by_pod.store.unlink()
    adopt(PartitionFolders(by_pod.output, by_pod.state, 0, BY_POD), by_pod.offset())
    by_pod.publish(ours("web01", after, 7, b"last\n"), ours("web01", "syslog", 2, b"last\n"))
    by_pod.receive(done.until)

    closed = {f"{path}.000001": lines for path, lines in files.items()}
    assert by_pod.files() == closed | dict.fromkeys(files, b"last\n")
