"""What a receiver wrote for a host, as one run of bytes: the closed segments in the order of their numbers, then the live one."""

import gzip
import re
from pathlib import Path

import zstandard

__all__ = ["hosts_in", "read_received", "read_segment", "segments_of"]

_SEGMENT = re.compile(r"(?P<host>.+)\.log(?:\.(?P<number>[0-9]{6,})(?P<packed>\.zst|\.gz)?)?")


def hosts_in(output: Path) -> set[str]:
    """Return the hosts that have files in the output folder."""
    names = (_SEGMENT.fullmatch(path.name) for path in output.iterdir() if path.is_file())
    return {name["host"] for name in names if name}


def segments_of(output: Path, host: str) -> list[Path]:
    """Return the files of a host, oldest first; raises ValueError when a number is there twice."""
    numbered: dict[int, Path] = {}
    for path in output.glob(f"{_escape(host)}.log.*"):
        name = _SEGMENT.fullmatch(path.name)
        if name is None or name["host"] != host or name["number"] is None:
            continue
        number = int(name["number"])
        if number in numbered:
            raise ValueError(f"segment {number} of {host} is there twice: {path}")
        numbered[number] = path
    live = output / f"{host}.log"
    return [numbered[number] for number in sorted(numbered)] + ([live] if live.exists() else [])


def read_received(output: Path, host: str) -> bytes:
    """Return everything that was received from a host; empty when there is nothing."""
    return b"".join(read_segment(path) for path in segments_of(output, host))


def read_segment(path: Path) -> bytes:
    """Return the lines of one file, unpacked."""
    match path.suffix:
        case ".zst":
            with path.open("rb") as packed:
                return (
                    zstandard.ZstdDecompressor()
                    .stream_reader(packed, read_across_frames=True)
                    .read()
                )
        case ".gz":
            return gzip.decompress(path.read_bytes())
        case _:
            return path.read_bytes()


def _escape(host: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", host)
