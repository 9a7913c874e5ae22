"""Reads the content of compressed files in sequence, in bounded memory, without a temporary file.

Positions are positions in the content. Blocks, so it runs in a thread; the caller owns the
descriptor.
"""

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import zstandard

from shipper.sources.files.paths import Compression
from shipper.sources.worker import note_progress

_INPUT = 1024
"""Bytes that are decompressed at a time: zlib makes at most 1 MiB of them, zstd 32 MiB."""

_OUTPUT = 64 * 1024
"""Bytes that bzip2 and xz give at a time, since they make much more of their input.

They keep the rest of the input.
"""

_BOUNDED = {Compression.XZ, Compression.BZIP2}

_MOST_MEMORY = 128 * 1024 * 1024
"""Bytes for a dictionary; `xz -9` needs 65 MiB."""

_STREAMS: Mapping[Compression, Callable[[], Any]] = {
    Compression.GZIP: lambda: zlib.decompressobj(wbits=31),
    Compression.ZSTD: lambda: zstandard.ZstdDecompressor(
        max_window_size=_MOST_MEMORY
    ).decompressobj(),
    Compression.XZ: lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY),
    Compression.BZIP2: bz2.BZ2Decompressor,
}
"""Make a decompressor for one gzip member, zstd frame, xz or bzip2 stream."""

_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError, ValueError)


class Decompressor:
    """The content of all streams of one compressed file.

    `damage` says why no more can be decompressed; it is empty if more can.
    """

    def __init__(self, descriptor: int, compression: Compression) -> None:
        self._descriptor = descriptor
        self._packing = compression
        self._restart()

    def _restart(self) -> None:
        self.damage = ""
        self._window, self._start = bytearray(), 0  # the start of the window in the content
        self._input, self._at = b"", 0  # the end of the input in the file
        self._exhausted = False
        self._stream: Any = None

    @property
    def reached(self) -> int:
        """How far it has decompressed."""
        return self._start + len(self._window)

    @property
    def is_complete(self) -> bool:
        """Whether the whole file was decompressed, and its last stream has an end."""
        ended = self._stream is not None and self._stream.eof
        return self._exhausted and ended and not self.damage

    def read(self, start: int, end: int) -> bytes:
        """Return the content in `[start, end)`, or less if it ends before or is damaged.

        Bytes before `start` are forgotten: asking for them again decompresses the file from its
        beginning. A file that has grown is read on. Raises OSError.
        """
        if start < self._start:
            self._restart()
        self._exhausted = False
        while True:
            passed = min(start, self.reached) - self._start
            del self._window[:passed]
            self._start += passed
            if self.reached >= end or self.damage or not self._more():
                return bytes(self._window[start - self._start : end - self._start])

    def is_at_end(self) -> bool:
        """Whether the content ends at the position reached, now; raises OSError."""
        reached = self.reached
        return len(self.read(self._start, reached + 1)) == reached - self._start

    def _more(self) -> bool:
        stream, is_bounded = self._stream, self._packing in _BOUNDED
        is_busy = is_bounded and stream is not None and not (stream.needs_input or stream.eof)
        if not self._input and not is_busy:
            self._input = os.pread(self._descriptor, _INPUT, self._at)
            self._at += len(self._input)
            self._exhausted = not self._input
        if self._exhausted:
            return False
        if stream is None or stream.eof:
            stream = self._stream = _STREAMS[self._packing]()
        try:
            limit = (_OUTPUT,) if is_bounded else ()
            self._window += stream.decompress(self._input, *limit)
            self._input = stream.unused_data
            note_progress()
        except _ERRORS as error:
            self.damage = str(error) or type(error).__name__
        return True
