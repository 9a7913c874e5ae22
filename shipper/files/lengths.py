"""How much content a compressed file has, as its own headers tell: without unpacking it. Blocks; keeps nothing.

Formats: RFC 1952 (gzip), RFC 8878 (zstd), the .xz file format 1.2. bzip2 does not tell.
"""

import os
import re
import struct
from collections.abc import Iterator

from shipper.files.packing import Packing

__all__ = ["told_length"]

_CHUNK = 1024 * 1024
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", re.DOTALL)
_MEMBER_BYTES = 10
_XZ_FOOTER = 12
_MOST_INDEX = 1024 * 1024
_SKIPPABLE = 0x184D2A50


def told_length(descriptor: int, packing: Packing, least: int) -> int | None:
    """Return the bytes of content, at least `least`; None where the headers do not tell, or there is damage.

    gzip tells it modulo 4 GiB, for its last member alone: a file that may have several is not believed. Raises OSError.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        return None  # its compressor has just begun
    try:
        match packing:
            case Packing.GZIP:
                return _gzip(descriptor, size, least)
            case Packing.ZSTD:
                return _zstd(descriptor, size)
            case Packing.XZ:
                return _xz(descriptor, size)
            case Packing.BZIP2:
                return None
    except (struct.error, ValueError, IndexError, StopIteration):
        return None


def _gzip(descriptor: int, size: int, least: int) -> int | None:
    # a header by chance, once in 2**37 bytes, costs no more than unpacking
    for at in range(0, size, _CHUNK):
        chunk = os.pread(descriptor, _CHUNK + _MEMBER_BYTES - 1, at)
        if any(at + found.start() for found in _MEMBER.finditer(chunk)):
            return None
    (length,) = struct.unpack("<I", _exactly(descriptor, 4, size - 4))
    return int(length) + max(0, -(-(least - int(length)) >> 32) << 32)


def _zstd(descriptor: int, size: int) -> int | None:
    total = at = 0
    while at < size:
        head = os.pread(descriptor, 18, at)
        magic, skipped = struct.unpack_from("<II", head)
        if magic & ~0xF == _SKIPPABLE:
            at += 8 + skipped
            continue
        length = _frame_content(head)
        if length is None:
            return None
        total += length
        at = _frame_end(descriptor, at, head)
    return total if at == size else None


def _frame_content(head: bytes) -> int | None:
    import zstandard

    try:
        length = zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return None
    return None if length < 0 else length


def _frame_end(descriptor: int, at: int, head: bytes) -> int:
    import zstandard

    checksum = head[4] & 0b100
    at += zstandard.frame_header_size(head)
    last = False
    while not last:
        block = int.from_bytes(_exactly(descriptor, 3, at), "little")
        last, kind, length = bool(block & 1), block >> 1 & 0b11, block >> 3
        at += 3 + (1 if kind == 1 else length)
    return at + (4 if checksum else 0)


def _xz(descriptor: int, end: int) -> int:
    total = 0
    while end:
        footer = _exactly(descriptor, _XZ_FOOTER, end - _XZ_FOOTER)
        if footer.endswith(b"\0\0\0\0"):
            end -= 4
            continue
        if not footer.endswith(b"YZ"):
            raise ValueError("no footer")
        index = (int.from_bytes(footer[4:8], "little") + 1) * 4
        if index > _MOST_INDEX:
            raise ValueError("a vast index")
        begin = end - _XZ_FOOTER - index
        stored, length = _xz_index(_exactly(descriptor, index, begin))
        total += length
        end = begin - stored - _XZ_FOOTER
    return total


def _xz_index(index: bytes) -> tuple[int, int]:
    numbers = _numbers(index[1:-4])
    records = next(numbers)
    stored = length = 0
    for _ in range(records):
        stored += -(-next(numbers) // 4) * 4
        length += next(numbers)
    return stored, length


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


def _exactly(descriptor: int, length: int, at: int) -> bytes:
    if at < 0 or len(data := os.pread(descriptor, length, at)) < length:
        raise ValueError("ends early")
    return data
