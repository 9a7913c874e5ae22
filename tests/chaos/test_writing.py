"""What hosts write: everything that reached a file is accounted for, and no rotation destroys a line."""

import bz2
import errno
import gzip
import lzma
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from shipper.tail.paths import Packing, live_names, packing_of
from tests.chaos.logfile import Insistence, LogFile
from tests.chaos.rotations import Naming, Rotation, Style, Way
from tests.chaos.writers import applications
from tests.chaos.writing import Writing

UNPACK: dict[Packing | None, Callable[[bytes], bytes]] = {
    None: bytes,
    Packing.GZIP: gzip.decompress,
    Packing.XZ: lzma.decompress,
    Packing.BZIP2: bz2.decompress,
    Packing.ZSTD: zstandard.ZstdDecompressor().decompress,
}
NEVER = Insistence(threading.Event(), 0)


def no_pause(_: float) -> None:
    pass


def log_in(folder: Path) -> LogFile:
    log = LogFile(folder / "logs" / "app.log", folder / "account", NEVER)
    log.begin()
    return log


def standing(folder: Path) -> dict[str, bytes]:
    """Return what stands in all files, unpacked, by name."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.name: UNPACK[packing_of(path.name)](path.read_bytes()) for path in paths}


@pytest.mark.parametrize("naming", Naming)
@pytest.mark.parametrize("way", [way for way in Way if way is not Way.REPLACE])
def test_whatever_the_rotation_every_byte_stands_in_some_file(
    tmp_path: Path, way: Way, naming: Naming
) -> None:
    log = log_in(tmp_path)
    packing = list(Packing)[way.value % 4]
    style = Style(naming, (way,), packing, is_delayed=True, keep=1000, every=0.001)
    rotation = Rotation(log, style, random.Random(2), NEVER, lambda _: True, no_pause)
    for number in range(12):
        log.append(b"line %d\n" % number)
        rotation.tick(7.0)

    files = standing(tmp_path / "logs")

    lines = [line for content in files.values() for line in content.splitlines()]
    assert sorted(lines) == sorted(log.content().splitlines())
    assert all("app.log" in (name, *live_names(name)) for name in files)
    assert len(log.generations) > 3
    starts = [generation.begins for generation in log.generations]
    ends = [generation.begins + generation.length for generation in log.generations]
    assert [*starts, log.written] == [0, *ends]


def test_a_file_is_removed_only_once_it_and_its_successor_are_received(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    style = Style(Naming.NUMBERS, (Way.RENAME,), None, is_delayed=False, keep=1, every=0.001)
    received = 1
    rotation = Rotation(log, style, random.Random(1), NEVER, lambda end: end <= received, no_pause)
    for _ in range(5):
        log.append(b"line\n")
        rotation.tick(1.0)
    kept = len(standing(tmp_path / "logs"))
    received = log.generations[2].begins

    log.append(b"line\n")
    rotation.tick(1.0)

    assert kept == 6
    assert len(standing(tmp_path / "logs")) == kept  # one came, the oldest went


def test_what_a_disk_took_of_a_write_is_counted_and_the_rest_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(tmp_path)
    answers = iter([OSError(errno.ENOSPC, "full"), 3, OSError(errno.EROFS, "read-only"), None])
    write = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        match next(answers, None):
            case OSError() as error:
                raise error
            case most:
                return int(write(descriptor, data[:most]))

    monkeypatch.setattr("os.write", refuse)
    log._insist = Insistence(threading.Event(), 1)

    log.append(b"line\n")

    assert log.path.read_bytes() == log.content()
    assert log.content().endswith(b"\nline\n")
    assert log.whole == log.written == len(log.content())


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_host_writes_at_about_its_rate_and_all_of_it_is_accounted_for(
    tmp_path: Path, number: int
) -> None:
    writing = Writing(
        tmp_path / "logs",
        tmp_path / "accounts",
        applications(number, 100, seed=5),
        seed=5,
        received=lambda: 0,
    )
    for _ in range(600):
        writing.tick(0.1)
    writing.finish()

    written = [log.content() for log in writing.logs]

    files = standing(tmp_path / "logs")
    assert sorted(files.values()) == sorted(content for content in written if content)
    assert 1_500 < sum(content.count(b"\n") for content in written) < 12_000
    assert all(content.endswith(b"the whole log\n") for content in written if content)


def test_the_same_seed_writes_the_same(tmp_path: Path) -> None:
    def written(name: str) -> list[bytes]:
        folder = tmp_path / name
        writing = Writing(folder, folder / "accounts", applications(2, 100, 7), 7, lambda: 0)
        for _ in range(300):
            writing.tick(0.1)
        return [log.content() for log in writing.logs]

    assert written("one") == written("two")
