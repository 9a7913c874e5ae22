"""The positions file survives crashes, and never stops an agent by being damaged."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.block import Identity, Origin, Span
from broker.exits import ConfigurationError
from shipper.cache import Cache
from shipper.positions import Positions

ORIGIN = Origin("1-aaaaaaaa", "/a", Span("f", 0, 9), Identity(1, 0, "", 0, ""), 1, 1)
POSITIONS = Positions().advance([ORIGIN], 3)
CURSOR = POSITIONS.files["f"]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_what_was_saved_is_loaded_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "web01"
    cache = Cache(folder)
    assert cache.load() == Positions()

    cache.save(POSITIONS)

    assert Cache(folder).load() == POSITIONS
    assert names(folder) == ["positions.json"]


def test_unchanged_positions_are_not_written_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.save(POSITIONS)
    (tmp_path / "positions.json").unlink()

    cache.save(POSITIONS)

    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"version": 0, "files": {}}', b'{"version": 2, "files": {}}'],
    ids=["empty", "torn", "older", "newer"],
)
def test_a_damaged_file_is_set_aside_with_one_line(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "positions.json").write_bytes(data)

    with caplog.at_level(logging.WARNING):
        loaded = Cache(tmp_path).load()

    assert loaded == Positions()
    assert (tmp_path / "positions.json.damaged").read_bytes() == data
    assert len(caplog.messages) == 1


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path: Path) -> None:
    Cache(tmp_path).save(POSITIONS)
    (tmp_path / "positions.json.99999.tmp").write_bytes(b"{")

    assert Cache(tmp_path).load() == POSITIONS
    assert names(tmp_path) == ["positions.json"]


def test_a_file_that_another_agent_is_writing_is_not_swept_away(tmp_path: Path) -> None:
    writes = (
        "import os, pathlib, sys\n"
        "from dataclasses import replace\n"
        "from shipper.cache import Cache\n"
        "from shipper.positions import Positions\n"
        "sync = os.fsync\n"
        "def wait(file): print(flush=True); sys.stdin.readline(); sync(file); os.fsync = sync\n"
        "os.fsync = wait\n"
        "Cache(pathlib.Path(sys.argv[1])).save(replace(Positions(), sequence=7))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", writes, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        Cache(tmp_path).load()
        _, _ = other.communicate("\n")

    assert other.returncode == 0
    assert Cache(tmp_path).load().sequence == 7
    assert names(tmp_path) == ["positions.json"]


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "web01")
    cache.load()
    (tmp_path / "web01").rmdir()

    cache.save(POSITIONS)

    assert Cache(tmp_path / "web01").load() == POSITIONS


def test_two_agents_with_the_same_process_id_do_not_tear_each_others_file(tmp_path: Path) -> None:
    caches = [Cache(tmp_path), Cache(tmp_path)]
    files = {f"f{number}": replace(CURSOR, file=f"f{number}") for number in range(300)}

    def save_often(cache: Cache) -> None:
        for number in range(60):
            cache.save(Positions(number, "1-aaaaaaaa", files))

    threads = [threading.Thread(target=save_often, args=[cache]) for cache in caches]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with suppress(FileNotFoundError):
            Positions.decode((tmp_path / "positions.json").read_bytes())

    assert Cache(tmp_path).load().sequence == 59


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk on which not even an empty file can be made; only the superuser may."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-o", "size=64k,nr_inodes=3"]
    mounted = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", disk], check=False)
    if mounted.returncode:
        pytest.skip("only the superuser may mount")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_no_reason_not_to_start(full_disk: Path) -> None:
    for number in range(2):
        (full_disk / str(number)).touch()
    cache = Cache(full_disk / "web01")

    assert cache.load() == Positions()
    with pytest.raises(OSError, match="No space left"):
        cache.save(POSITIONS)
    for number in range(2):
        (full_disk / str(number)).unlink()
    cache.save(POSITIONS)

    assert Cache(full_disk / "web01").load() == POSITIONS


def test_a_state_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="--state-dir"):
        Cache(tmp_path / "file" / "web01").load()
