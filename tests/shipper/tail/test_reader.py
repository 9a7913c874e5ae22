"""Reading at once, on the loop: the same as on a thread, or nothing."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shipper.tail.reader import Limits, Reader, Request

LINES = b"one\ntwo\nthree\nfo"


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[..., Request]]:
    opened: list[int] = []

    def make(data: bytes = LINES, offset: int = 4) -> Request:
        path = tmp_path / f"{len(opened)}.log"
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        opened.append(descriptor)
        before = data[:offset]
        return Request(descriptor, offset, 1 << 20, len(data), before, before[-64:])

    yield make
    for descriptor in opened:
        os.close(descriptor)


@pytest.fixture
def reader() -> Reader:
    return Reader(1 << 20, Limits(1000, 10_000, 0, 10))


@pytest.fixture(autouse=True)
def _tells(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            pytest.skip("this file system does not say what it holds in memory")


async def test_a_few_bytes_in_memory_are_read_as_they_are_on_a_thread(
    ask: Callable[..., Request], reader: Reader
) -> None:
    requests = [ask(), ask(b"", 0), ask(b"line\n" * 600, 5)]

    assert reader.read_at_once(requests) == await reader.read(requests)


def test_many_bytes_or_files_are_left_to_a_thread(
    ask: Callable[..., Request], reader: Reader
) -> None:
    assert reader.read_at_once([ask(), ask(b"line\n" * 10_000)]) is None
    assert reader.read_at_once([ask()] * 33) is None


async def test_bytes_that_only_the_disk_has_are_left_to_a_thread(
    ask: Callable[..., Request], reader: Reader
) -> None:
    request = ask(b"line\n" * 4000, 0)
    os.fsync(request.descriptor)
    os.posix_fadvise(request.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    assert reader.read_at_once([request]) is None
    assert b"".join((await reader.read([request]))[0].runs) == b"line\n" * 4000


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"least": 1000}, id="truncated"),
        pytest.param({"head": b"other"}, id="written anew"),
        pytest.param({"tail": b"other"}, id="other bytes before the offset"),
        pytest.param({"descriptor": -1}, id="closed"),
    ],
)
def test_what_is_doubtful_is_left_to_a_thread(
    ask: Callable[..., Request], reader: Reader, change: dict[str, int]
) -> None:
    assert reader.read_at_once([ask(), replace(ask(), **change)]) is None  # type: ignore[arg-type]
