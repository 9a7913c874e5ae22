"""Files that begin alike, with a banner, are not taken for copies of one another."""

import asyncio
import os
import random
import re
from pathlib import Path

import pytest

from shipper.sources.files.identity import Sample
from shipper.sources.files.paths import Compression, Selection
from shipper.sources.files.sampling import sample
from shipper.sources.files.scan import scan
from tests.descriptors import held_by
from tests.shipper.host import Host, packed
from tests.shipper.sources.files.conftest import MakeHost
from tests.support import processes

MIB = 1024 * 1024
BANNERS = [0, 20, 63, 64, 200, 1023, 1024, 1500, 4096]  # lengths in bytes


async def wait_until_open(path: Path) -> None:
    """Wait for the thread of the follower."""

    def is_open() -> bool:
        return str(path) in held_by(os.getpid())

    await asyncio.to_thread(processes.wait_until, "a file is open", is_open, 30)


class Writer:
    """Writes numbered lines to app.log, and rotates, compresses and deletes the files at random."""

    def __init__(self, host: Host, seed: int, *, deletes: bool) -> None:
        self.random = random.Random(seed)
        length = self.random.choice(BANNERS)
        self.banner = b"#" * (length - 1) + b"\n" if length else b""
        self.files = self.count = 0
        self._host, self._live, self._deletes = host, host.folder / "app.log", deletes

    def write(self, lines: int) -> None:
        numbers = range(self.count, self.count + lines)
        self.count += lines
        ends = (b"x" * self.random.choice([0, 60, 300]) for _ in numbers)
        data = b"".join(b"%06d%s\n" % one for one in zip(numbers, ends, strict=True))
        self._host.write("app.log", data)

    async def act(self) -> None:
        if not self._live.exists():
            self._host.write("app.log", self.banner)
            self.write(self.random.choice([0 if self.banner else 1, 1, 3, 30]))
            self.files += 1
            if self._deletes:
                await wait_until_open(self._live)
            return
        match self.random.choice(["write", "rotate", "rotate", "pack", "delete"]):
            case "write":
                self.write(self.random.choice([1, 3, 30]))
            case "rotate":
                self._rotate()
            case "pack":
                names = [p.name for p in self._live.parent.glob("app.log.*") if p.suffix != ".gz"]
                if names:
                    self._host.pack(self.random.choice(sorted(names)))
            case "delete" if self._deletes:
                self._live.unlink()

    def _rotate(self) -> None:
        there = [
            (int(found[1]), found[2])
            for path in self._live.parent.iterdir()
            if (found := re.fullmatch(r"app\.log\.(\d+)(.*)", path.name))
        ]
        for number, ending in sorted(there, reverse=True):
            self._host.move(f"app.log.{number}{ending}", f"app.log.{number + 1}{ending}")
        self._host.move("app.log", "app.log.1")


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("seed", range(12))
async def test_each_line_of_files_that_begin_alike_is_shipped_once_in_order(
    make_host: MakeHost, seed: int, *, listen: bool
) -> None:
    host = make_host("app.log", listen=listen)
    writer = Writer(host, seed, deletes=listen)
    await host.ship()
    for _ in range(30):
        await writer.act()
        if (chance := writer.random.random()) < 0.4:
            await (host.scan() if chance < 0.2 else host.ship())
    await host.ship_out()
    await host.ship_out()

    lines = [line for line in host.shipped.splitlines() if not line.startswith(b"#")]
    assert [int(line[:6]) for line in lines] == list(range(writer.count))
    if listen and writer.banner:
        assert host.shipped.count(writer.banner) == writer.files


async def test_a_compressed_file_that_begins_like_a_short_one_that_came_and_went_is_read(
    host: Host,
) -> None:
    await host.ship()
    host.write("app.log", b"banner\n")
    await wait_until_open(host.folder / "app.log")
    (host.folder / "app.log").unlink()
    (host.folder / "app.log.1.gz").write_bytes(packed(b"banner\na line\n", Compression.GZIP))
    await host.ship_out()

    assert host.shipped == b"banner\nbanner\na line\n"


async def test_of_two_equal_compressed_files_only_one_is_a_copy(host: Host) -> None:
    await host.ship()
    host.write("app.log", b"done\n")
    await wait_until_open(host.folder / "app.log")
    host.move("app.log", "app.log.1")
    host.pack("app.log.1")
    (host.folder / "app.log.2.gz").write_bytes(packed(b"done\n", Compression.GZIP))
    await host.ship_out()

    assert host.shipped == b"done\n" * 2


async def test_a_rotated_file_that_begins_like_a_larger_file_that_is_gone_is_read(
    make_host: MakeHost,
) -> None:
    host, banner = make_host("app.log", listen=False), b"#" * 1023 + b"\n"
    host.write("app.log", banner + b"first\n" * 100)
    await host.ship()
    (host.folder / "app.log").unlink()
    await host.restart_with_saved_positions()
    await host.ship()
    host.write("app.log.1", banner + b"second\n")
    await host.ship_out()

    assert host.shipped.endswith(b"first\n" + banner + b"second\n")


@pytest.mark.parametrize(
    ("size", "is_in_live"), [(79, True), (80, True), (81, False), (500, False)]
)
def test_an_archive_is_compared_with_the_live_file_as_far_as_that_may_be_its_original(
    tmp_path: Path, size: int, *, is_in_live: bool
) -> None:
    banner = b"#" * (MIB - 1) + b"\n"
    (tmp_path / "app.log").write_bytes(banner)
    os.truncate(tmp_path / "app.log", 80 * MIB)
    frames = packed(banner, Compression.ZSTD) + packed(bytes(MIB), Compression.ZSTD) * (size - 1)
    (tmp_path / "app.log.1.zst").write_bytes(frames)
    entries = scan(Selection.of([str(tmp_path / "app.log")]), {}).entries
    live, archive = sorted(entries, key=lambda entry: entry.path)

    found = sample(dict.fromkeys(entries, ()), from_end=(), opened={}, originals={})[archive.key]

    assert isinstance(found, Sample)
    assert found.is_in_live == is_in_live
    assert set(found.differs_from) == (set() if is_in_live else {live.key})
    assert found.size < 200 * MIB
