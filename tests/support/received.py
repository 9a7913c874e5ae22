"""What a receiver wrote for a host: closed segments by their numbers, then the live file."""

import gzip
import re
from contextlib import suppress
from math import inf
from pathlib import Path

import zstandard

SEGMENT = re.compile(r"(?P<host>.+)\.log(?:\.(?P<number>[0-9]{6,})(?P<packed>\.zst|\.gz)?)?")


def segments_by_host(output: Path) -> dict[str, list[Path]]:
    """Return the files of every host, oldest first; raises ValueError for a number twice."""
    numbered: dict[str, dict[int | float, Path]] = {}
    for path in output.iterdir():
        name = SEGMENT.fullmatch(path.name)
        if name is None or not path.is_file():
            continue
        number = int(name["number"]) if name["number"] else inf  # the live file is the last
        mine = numbered.setdefault(name["host"], {})
        if number in mine:
            raise ValueError(f"segment {number} of {name['host']} is there twice: {path}")
        mine[number] = path
    return {host: [mine[number] for number in sorted(mine)] for host, mine in numbered.items()}


def segments_of(output: Path, host: str) -> list[Path]:
    return segments_by_host(output).get(host, [])


def received_in_all(output: Path) -> int:
    """Return how many bytes all files of an output folder have, as they lie there."""
    return sum(path.stat().st_size for path in output.iterdir() if SEGMENT.fullmatch(path.name))


def received_bytes(output: Path, host: str) -> int:
    """Return how many bytes a host's files have, as they lie there."""
    total = 0
    for path in segments_of(output, host):
        with suppress(FileNotFoundError):  # it has just been renamed
            total += path.stat().st_size
    return total


def read_received(output: Path, host: str) -> bytes:
    return b"".join(map(read_segment, segments_of(output, host)))


def is_packed(path: Path) -> bool:
    return path.suffix in (".zst", ".gz")


def read_segment(path: Path) -> bytes:
    match path.suffix:
        case ".zst":
            unpacker = zstandard.ZstdDecompressor()
            with unpacker.stream_reader(path.read_bytes(), read_across_frames=True) as stream:
                return stream.read()
        case ".gz":
            return gzip.decompress(path.read_bytes())
        case _:
            return path.read_bytes()
