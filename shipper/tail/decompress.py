"""Reads the content of compressed files in sequence, a piece at a time, in bounded memory, without a temporary file.

Positions are those of the content. Blocks, so it runs in a thread; the descriptor belongs to the caller.
"""

import bz2
import lzma
import os
import sys
import zlib
from typing import TypeAlias

import zstandard

from shipper.tail.paths import Packing

_INPUT = 1024
"""Bytes that are decompressed at a time: zlib makes 1 MiB of them at the most, zstd 32 MiB."""

_OUTPUT = 64 * 1024
"""Bytes that bzip2 and xz give at a time: they make much more of a little input."""

_AHEAD = 64 * 1024
"""Damage may give wrong bytes before it is noticed: so much before it is held back, and lost with it."""

_MOST_MEMORY = 128 * 1024 * 1024
"""Bytes for a dictionary; `xz -9` needs 65 MiB."""

_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError, ValueError)


_Bounded = lzma.LZMADecompressor | bz2.BZ2Decompressor
"""These take a limit of the bytes that they give at a time, and keep the rest of their input."""

_Stream: TypeAlias = "_Bounded | zlib._Decompress | zstandard.ZstdDecompressionObj"
"""One gzip member, zstd frame, xz or bzip2 stream."""


def _stream(packing: Packing) -> _Stream:
    match packing:
        case Packing.GZIP:
            return zlib.decompressobj(wbits=31)
        case Packing.ZSTD:
            return zstandard.ZstdDecompressor(max_window_size=_MOST_MEMORY).decompressobj()
        case Packing.XZ:
            return lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
        case Packing.BZIP2:
            return bz2.BZ2Decompressor()


class Decompressor:
    """The content of one compressed file; streams that stand behind each other are one content.

    `damage` says why nothing more can be decompressed, empty while all is well. `is_underway` says that the last
    reading stopped on its way to the bytes that it was asked for.
    """

    def __init__(self, descriptor: int, packing: Packing) -> None:
        self._descriptor = descriptor
        self._packing = packing
        self._restart()

    def _restart(self) -> None:
        self.damage = ""
        self.is_underway = False
        self._window = bytearray()
        self._start = 0  # of the window, in the content
        self._input = b""
        self._at = 0  # behind the input, in the file
        self._exhausted = False
        self._stream: _Stream | None = None
        self._begun = 0  # where the stream's content begins

    @property
    def reached(self) -> int:
        """How far it has decompressed."""
        return self._start + len(self._window)

    @property
    def is_complete(self) -> bool:
        """Whether all that is there was decompressed, and its last stream has ended."""
        ended = self._stream is not None and self._stream.eof
        return self._exhausted and ended and not self.damage

    def read(self, start: int, end: int, most: int = sys.maxsize) -> bytes:
        """Return the content in `[start, end)`, less where it ends before or is damaged; raises OSError.

        Bytes before `start` are forgotten: asking for them again decompresses all from the beginning. A file that has
        grown is read on. After `most` bytes on the way there it stops: then it `is_underway`, and is to be asked again.
        """
        if start < self._start:
            self._restart()
        self._exhausted = False
        self._forget(start)
        limit = min(end, self.reached + most) + _AHEAD
        while self.reached < limit and not self.damage and self._more():
            self._forget(start)
        self.is_underway = self.reached < end and not (self._exhausted or self.damage)
        return bytes(self._window[start - self._start : end - self._start])

    def is_at_end(self) -> bool:
        """Whether the content ends where it was decompressed to, now; raises OSError."""
        reached = self.reached
        return len(self.read(self._start, reached + 1)) == reached - self._start

    def _forget(self, start: int) -> None:
        passed = min(start, self.reached) - self._start
        del self._window[:passed]
        self._start += passed

    def _more(self) -> bool:
        stream = self._stream
        is_busy = isinstance(stream, _Bounded) and not (stream.needs_input or stream.eof)
        if not self._input and not is_busy:
            self._input = os.pread(self._descriptor, _INPUT, self._at)
            self._at += len(self._input)
            self._exhausted = not self._input
        if self._exhausted:
            return False
        if stream is None or stream.eof:
            stream = self._stream = _stream(self._packing)
            self._begun = self.reached
        self._decompress(stream)
        return True

    def _decompress(self, stream: _Stream) -> None:
        try:
            limit = (_OUTPUT,) if isinstance(stream, _Bounded) else ()
            self._window += stream.decompress(self._input, *limit)
            self._input = stream.unused_data
        except _ERRORS as error:
            self.damage = str(error) or type(error).__name__
            doubtful = min(_AHEAD, self.reached - self._begun, len(self._window))
            del self._window[len(self._window) - doubtful :]
