"""Reads the content of compressed files in sequence, a piece at a time, in bounded memory, without a temporary file.

Offsets are those of the content. Blocks, so it runs in a thread; the descriptor belongs to the caller.
"""

import bz2
import errno
import lzma
import os
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from shipper.tail.paths import Packing

__all__ = ["Unpacker", "told_length"]

_INPUT = 64 * 1024
_PIECE = 64 * 1024
"""How much is unpacked at a time."""

_AHEAD = 64 * 1024
"""Damage may give wrong bytes before it is noticed: so much before it is held back, and lost with it."""

_ZSTD_INPUT = 1024
"""A piece of input cannot be told to stop: 1 KiB gives 32 MiB at the very most; the next ones are as small as it takes."""

_MOST_MEMORY = 128 * 1024 * 1024
"""Bytes for a dictionary; `xz -9` needs 65 MiB."""


class _Stream(Protocol):
    """One gzip member, zstd frame, xz or bzip2 stream; `left` is the input that it has not taken."""

    left: bytes

    def unpack(self, data: bytes) -> bytes: ...
    @property
    def ended(self) -> bool: ...
    @property
    def hungry(self) -> bool: ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.left = b""

    def unpack(self, data: bytes) -> bytes:
        out = self._inner.decompress(data, _PIECE)
        self.left = self._inner.unused_data if self.ended else self._inner.unconsumed_tail
        return out

    @property
    def ended(self) -> bool:
        return self._inner.eof

    @property
    def hungry(self) -> bool:
        return not self.left


class _Buffering:
    """The two of the standard library that keep their input themselves."""

    def __init__(self, inner: "bz2.BZ2Decompressor | lzma.LZMADecompressor") -> None:
        self._inner = inner
        self.left = b""

    def unpack(self, data: bytes) -> bytes:
        out = self._inner.decompress(data, _PIECE)
        self.left = self._inner.unused_data
        return out

    @property
    def ended(self) -> bool:
        return self._inner.eof

    @property
    def hungry(self) -> bool:
        return self._inner.needs_input


class _Zstd:
    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=_MOST_MEMORY).decompressobj()
        self._error = zstandard.ZstdError
        self._input = _ZSTD_INPUT
        self.left = b""

    def unpack(self, data: bytes) -> bytes:
        try:
            out = self._inner.decompress(data[: self._input])
        except self._error as error:
            raise ValueError(str(error)) from error
        self.left = (self._inner.unused_data if self.ended else b"") + data[self._input :]
        enough = len(out) > _PIECE
        self._input = max(16, self._input // 2) if enough else min(_ZSTD_INPUT, self._input * 2)
        return out

    @property
    def ended(self) -> bool:
        return self._inner.eof

    @property
    def hungry(self) -> bool:
        return not self.left


class Unpacker:
    """The content of one compressed file; streams that stand behind each other are one content.

    `damage` says why nothing more can be unpacked, empty while all is well; `is_complete` whether all that is there was
    unpacked and its last stream has ended.
    """

    def __init__(
        self, descriptor: int, packing: Packing, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin at the beginning; nothing is read yet. A reading ends with InterruptedError once `is_over`."""
        self._is_over = is_over
        self._descriptor = descriptor
        self.packing = packing
        self._start = 0
        self._window = bytearray()
        self._restart()

    @property
    def reached(self) -> int:
        """How far it has unpacked."""
        return self._start + len(self._window)

    @property
    def is_complete(self) -> bool:
        """Whether the last stream has ended and nothing stands behind it."""
        return self._exhausted and self._stream is None and self._streams > 0 and not self.damage

    def read(self, start: int, end: int, most: int = sys.maxsize) -> bytes:
        """Return the content in `[start, end)`, less where it ends before or is damaged; raises OSError.

        What stands before `start` is forgotten: asking for it again unpacks all from the beginning. A file that has
        grown is read on. After `most` bytes on the way there it stops: then it `is_underway`, and is to be asked again.
        """
        if start < self._start:
            self._restart()
        self._exhausted = False
        self._forget(start)
        limit = self.reached + _AHEAD + most
        while self.reached < min(end + _AHEAD, limit) and self._more():
            self._forget(start)
        self.is_underway = self.reached < end and not (self._exhausted or self.damage)
        return bytes(self._window[start - self._start : end - self._start])

    def is_at_end(self) -> bool:
        """Whether nothing stands behind what was unpacked, now; raises OSError."""
        reached = self.reached
        return len(self.read(self._start, reached + 1)) == reached - self._start

    def _restart(self) -> None:
        self.damage = ""
        self.is_underway = False
        self._start = 0
        self._window = bytearray()
        self._at = self._begun = 0
        self._input = b""
        self._stream: _Stream | None = None
        self._streams = 0
        self._exhausted = False

    def _forget(self, start: int) -> None:
        passed = min(start, self.reached) - self._start
        del self._window[:passed]
        self._start += passed

    def _more(self) -> bool:
        if self._is_over():
            raise InterruptedError(errno.EINTR, "nobody waits for it any more")
        if self.damage:
            return False
        if (self._stream is None or self._stream.hungry) and not self._input:
            self._input = os.pread(self._descriptor, _INPUT, self._at)
            self._at += len(self._input)
            self._exhausted = not self._input
        if self._stream is None and self._streams and self.packing in {Packing.GZIP, Packing.XZ}:
            self._input = self._input.lstrip(b"\0")  # both may be padded
        if self._exhausted:
            return False
        if self._input or self._stream is not None:
            self._unpack()
        return True

    def _unpack(self) -> None:
        try:
            stream = self._stream or self._begin()
            self._window += stream.unpack(self._input)
            self._input = stream.left
            if stream.ended:
                self._stream = None
                self._streams += 1
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            self.damage = str(error) or type(error).__name__
            doubtful = min(_AHEAD, self.reached - self._begun, len(self._window))
            del self._window[len(self._window) - doubtful :]

    def _begin(self) -> _Stream:
        stream: _Stream
        match self.packing:
            case Packing.GZIP:
                stream = _Gzip()
            case Packing.ZSTD:
                stream = _Zstd()
            case Packing.XZ:
                stream = _Buffering(lzma.LZMADecompressor(memlimit=_MOST_MEMORY))
            case Packing.BZIP2:
                stream = _Buffering(bz2.BZ2Decompressor())
        self._stream, self._begun = stream, self.reached
        return stream


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
