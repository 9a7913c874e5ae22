"""Reads the content of a compressed file in sequence, a piece at a time, in bounded memory. Keeps no temporary file.

Offsets are those of the content. Blocks, so it runs in a thread; the descriptor is its owner's.
"""

import bz2
import errno
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from typing import Protocol

from shipper.files.packing import Packing

__all__ = ["Unpacker"]

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
