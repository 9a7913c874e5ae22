"""The content of compressed files, read in sequence, and where gzip says that it ends."""

import random
from pathlib import Path

import pytest

from shipper.sources.files.decompress import Decompressor
from shipper.sources.files.paths import Compression
from shipper.sources.worker import Worker
from tests.descriptors import opened
from tests.shipper.host import packed

LINES = b"".join(b"%d %x\n" % (n, random.Random(n).getrandbits(200)) for n in range(20_000))
forms = pytest.mark.parametrize(
    "compression", Compression, ids=lambda compression: compression.name.lower()
)


@forms
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_streams_behind_each_other_are_one_content_that_is_read_on_as_the_file_grows(
    compression: Compression, step: int, tmp_path: Path
) -> None:
    parts = (LINES, b"", LINES[:70], b"end\n")
    data = b"".join(packed(part, compression) for part in parts)
    content = b""
    with (tmp_path / "a").open("wb", buffering=0) as file, opened(tmp_path / "a") as descriptor:
        decompressor = Decompressor(descriptor, compression)
        for at in range(0, len(data), 50_001):
            assert not decompressor.is_complete
            file.write(data[at : at + 50_001])
            while part := decompressor.read(len(content), len(content) + step):
                content += part

        assert content == b"".join(parts)
        assert decompressor.is_at_end()
        assert (decompressor.is_complete, decompressor.damage) == (True, "")


def spoilt(compression: Compression, where: str) -> bytes:
    data = bytearray(packed(LINES, compression))
    match where:
        case "middle":
            data[len(data) // 2 : len(data) // 2 + 500] = b"\xff" * 500
        case "checksum":
            behind = {
                Compression.XZ: 24,
                Compression.GZIP: 2,
                Compression.ZSTD: 0,
                Compression.BZIP2: 4,
            }[compression]
            data[-6 - behind : len(data) - behind] = b"spoilt"
        case "garbage behind":
            data += b"garbage, and enough of it for any header" * 3
        case _:
            return b"plain text\n" * 30
    return bytes(data)


@forms
@pytest.mark.parametrize("where", ["middle", "checksum", "garbage behind", "not compressed"])
def test_damage_is_reported_and_the_content_before_it_is_read(
    compression: Compression, where: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(spoilt(compression, where))
    with opened(tmp_path / "a") as descriptor:
        decompressor = Decompressor(descriptor, compression)

        content = decompressor.read(0, 2 * len(LINES))

        assert decompressor.damage
        assert not decompressor.is_complete
        # zstd may give wrong bytes behind the damage before its checksum shows it
        third = len(LINES) // 3
        assert content[:third] == LINES[:third][: len(content)]
        assert (content == LINES) == (where == "garbage behind")


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
def test_no_more_is_held_than_was_asked_for(compression: Compression, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(packed(bytes(64 << 20), compression))
    with opened(tmp_path / "a") as descriptor:
        decompressor = Decompressor(descriptor, compression)

        decompressor.read(30 << 20, (30 << 20) + 1000)

        assert decompressor.reached < 40 << 20
        assert len(decompressor.read(30 << 20, 64 << 20)) == 34 << 20


@forms
async def test_a_worker_that_decompresses_for_long_is_not_taken_for_one_that_hangs(
    compression: Compression, tmp_path: Path
) -> None:
    worker = Worker("files")
    (tmp_path / "a").write_bytes(packed(LINES, compression))
    with opened(tmp_path / "a") as descriptor:
        decompressor = Decompressor(descriptor, compression)

        def read() -> list[float | None]:
            busy = [worker.busy_since]
            for size in (1, len(LINES), 2 * len(LINES)):  # the last one finds no more
                decompressor.read(0, size)
                busy.append(worker.busy_since)
            return busy

        began, first, end, again = await worker.do(read)

    assert began is not None
    assert first is not None
    assert end is not None
    assert began < first < end == again
    assert worker.busy_since is None
