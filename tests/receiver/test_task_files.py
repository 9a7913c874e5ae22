"""A task and its output: obstacles, full disks, many files, segments of several processes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume.assignment import Cause
from tests.descriptors import held_here
from tests.receiver.partition import Partition, blocked

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


@pytest.mark.parametrize("kinds", [{"none"}, {"ext3", "ext4", "f2fs", "xfs"}], ids=["each", "all"])
def test_more_hosts_than_descriptors_are_written_whole(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, kinds: set[str]
) -> None:
    """Whether each file is synced, or the file system that holds them all."""
    monkeypatch.setattr("receiver.storage.output._MOST_OPEN", 3)
    monkeypatch.setattr("receiver.storage.disk._TRUSTED", kinds)
    small = replace(partition, rotate_size=30)
    hosts = [f"host{n}" for n in range(10)]
    before = held_here()
    for number in range(5):
        for host in hosts:
            small.lines(host, b"%d of " % number + host.encode() + b" " * 5)

    small.receive()

    for host in hosts:
        expected = b"".join(b"%d of %s     \n" % (n, host.encode()) for n in range(5))
        assert small.read(host) == expected
    assert held_here() <= before + 4  # the broker's connection


@pytest.mark.parametrize("kind", ["symlink", "folder", "pipe", "dangling"])
def test_what_is_no_regular_file_blocks_and_is_left_alone(partition: Partition, kind: str) -> None:
    partition.lines("web01", b"one")
    partition.output.mkdir()
    live, victim = partition.output / "web01.log", partition.folder / "victim"
    victim.write_bytes(b"precious\n")
    match kind:
        case "symlink":
            live.symlink_to(victim)
        case "dangling":
            live.symlink_to(partition.folder / "nowhere")
        case "folder":
            live.mkdir()
        case _:
            os.mkfifo(live)

    blocked(partition.run(), Cause.DISK, "web01.log", "move it away")
    assert victim.read_bytes() == b"precious\n"
    assert not (partition.folder / "nowhere").exists()
