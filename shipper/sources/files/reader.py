"""Holds files open and reads whole lines from them.

Each read checks that the file is still the one that was read before. Blocks, so it runs in a
thread.
"""

import errno
import os
import resource
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, fcntl
from functools import partial

from shipper.sources.files.cutter import Cutter
from shipper.sources.files.decompress import Decompressor
from shipper.sources.files.file import FollowedFile, ReadLimits
from shipper.sources.files.holes import LEAST_HOLE, find_nuls, measure_nuls
from shipper.sources.files.identity import TAIL_BYTES, ContentHash, FileKey, Sample, fingerprint
from shipper.sources.files.paths import Compression
from shipper.sources.files.progress import Reading
from shipper.sources.files.sampling import close, open_file, sample_plain

_MOST_HEADS = 16 * 1024 * 1024  # bytes of files' first bytes that are read at a time
_LEAST_BUFFER = 16 * 1024  # bytes
_NULS_STEP = 256 * 1024  # bytes
_MOST_SKIPPED = 64 * 1024 * 1024  # bytes of NULs that are decompressed at a time
_MOST_SEARCHED = 16 * 1024 * 1024  # bytes at a time: an endless line keeps nothing else waiting
_MOST_BLOCKS = 64  # that are searched at a time


def most_open_files() -> int:
    """Return how many files may be open: half of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 16_384 if soft == resource.RLIM_INFINITY else max(16, min(16_384, soft // 2))


class FileReader:
    """The descriptors of some of the `files`; the least recently read file is closed first.

    An open file can be read to its end whatever becomes of its name, and its inode is not reused.
    Serves one caller at a time.
    """

    def __init__(self, files: Mapping[FileKey, FollowedFile], limits: ReadLimits) -> None:
        self.limits = limits
        self._files = files
        self._open: dict[FileKey, int] = {}  # descriptors, the least recently read file first
        self._decompressor: tuple[FileKey, str, Decompressor] | None = None  # one: it takes memory
        # one buffer for all reads spares the kernel from clearing fresh memory for every one; it
        # grows when that much can be read
        self._buffer = bytearray(_LEAST_BUFFER)

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: object) -> bool:
        return key in self._open

    @property
    def has_space(self) -> bool:
        """Whether no more files are open than may be."""
        return len(self._open) <= self.limits.open_files

    @property
    def space(self) -> int:
        """How many more deleted files may be open, which are never closed for others."""
        held = (self._files[key] for key in self._open if key in self._files)
        deleted = sum(file.unseen_since is not None for file in held)
        return max(0, self.limits.open_files - deleted)

    def find_descriptor(self, key: FileKey) -> int:
        """Return the descriptor of a file; -1 if it is not open."""
        return self._open.get(key, -1)

    # opening and closing

    def open(self, files: Sequence[FollowedFile]) -> dict[FileKey, OSError]:
        """Open files, the most recently read ones from now on; return why some cannot be opened.

        Stops, and closes half of all files, if descriptors run out: other parts need some as well.
        """
        troubles: dict[FileKey, OSError] = {}
        for file in files:
            key = file.entry.key
            if key in self._open:
                self._open[key] = self._open.pop(key)
                continue
            try:
                descriptor = open_file(file.entry)
            except OSError as error:
                troubles[key] = error
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    self._trim(len(self._open) // 2)
                    return troubles
            else:
                if descriptor >= 0:
                    self._open[key] = descriptor
                else:
                    text = "it was moved since the last scan"
                    troubles[key] = FileNotFoundError(errno.ENOENT, text)
        if len(self._open) > self.limits.open_files:
            self._trim(self.limits.open_files, {file.entry.key for file in files})
        return troubles

    def open_early(self, stored: Callable[[str], int]) -> dict[FileKey, OSError]:
        """Open files that are unread, written to or not stored as far as they are read.

        Opens as many as the limit allows, unread ones first; returns why some cannot be opened.
        """
        wanted = [
            file
            for key, file in self._files.items()
            if key not in self._open
            and (
                file.readable_since is not None
                or file.entry.is_live
                or file.offset > stored(file.file)
            )
        ]
        wanted.sort(key=lambda file: file.readable_since is None)
        return self.open(wanted[: max(0, self.limits.open_files - len(self._open))])

    def adopt(self, key: FileKey, descriptor: int) -> None:
        """Take over an open file; closes it if it is not followed, or was opened before."""
        if key in self._files and key not in self._open:
            self._open[key] = descriptor
        else:
            close(descriptor)

    def trim(self) -> None:
        """Close files that are not followed any more, and those above the limit."""
        self._trim(self.limits.open_files)

    def _trim(self, limit: int, wanted: Collection[FileKey] = ()) -> None:
        gone = [key for key in self._open if key not in self._files]
        # never a deleted one: it could not be opened again
        named = [
            key
            for key in self._open
            if key not in wanted and key in self._files and self._files[key].unseen_since is None
        ]
        for key in [*gone, *named[: max(0, len(self._open) - len(gone) - limit)]]:
            self._close(key)

    def close(self) -> None:
        """Close all files."""
        for key in list(self._open):
            self._close(key)

    def _close(self, key: FileKey) -> None:
        if self._decompressor is not None and self._decompressor[0] == key:
            self._decompressor = None
        close(self._open.pop(key))

    # what an open file shows beside its lines

    def is_linked(self, key: FileKey) -> bool:
        """Whether an open file has a name anywhere."""
        with suppress(OSError):  # another machine deleted it
            return os.fstat(self._open[key]).st_nlink > 0
        return False

    def has_writer(self, key: FileKey) -> bool:
        """Whether a process has an open file open for writing; False if that is not known.

        Its owner, root and CAP_LEASE are refused a lease then. Nobody opens a deleted file, so the
        lease is not broken; SIGURG, in place of SIGIO, would end no process.
        """
        descriptor = self._open[key]
        try:
            fcntl(descriptor, F_SETSIG, signal.SIGURG)
            fcntl(descriptor, F_SETLEASE, F_RDLCK)
            fcntl(descriptor, F_SETLEASE, F_UNLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN
        return False

    def has_its_content(self, file: FollowedFile) -> bool:
        """Whether the first bytes of an open file are those that were read; raises OSError."""
        content = file.progress.content
        return content.is_of(os.pread(self._open[file.entry.key], content.length, 0))

    def sample(self, file: FollowedFile) -> Sample | None:
        """Return a sample of an open file; None if it is compressed, or cannot be read."""
        if file.entry.compression is None:
            with suppress(OSError):
                descriptor = self._open[file.entry.key]
                return sample_plain(descriptor, file.entry, [file.progress.cursor])
        return None

    def read_heads(self, files: Iterable[FollowedFile]) -> Iterator[tuple[FollowedFile, bytes]]:
        """Yield open files that were followed from a position on, with their first bytes.

        Reads 16 MiB at a time at most.
        """
        left = _MOST_HEADS
        for file in files:
            if (
                left > 0
                and file.offset
                and not file.progress.content.length
                and file.entry.key in self
            ):
                with suppress(OSError):
                    wanted = min(file.offset, ContentHash.MOST)
                    data = os.pread(self._open[file.entry.key], wanted, 0)
                    left -= len(data)
                    yield file, data

    def _cutter_of(self, file: FollowedFile) -> Cutter:
        limits, rules = self.limits, self.limits.records
        sizes = limits.block_size, limits.max_line
        return Cutter(file.progress, rules.records_of(file.entry.real), *sizes, rules.lines)

    # reading lines

    def read(self, file: FollowedFile, limit: int, *, may_split: bool) -> Reading:
        """Return about `limit` bytes of lines of an open file.

        Unless it `may_split` records, a piece of an over-long one is returned only once that has
        ended.
        """
        try:
            if file.entry.compression is not None:
                return self._decompress(file, file.entry.compression, limit)
            reading = self._read(file, limit)
            is_begun = self._cutter_of(file).is_begun(reading)
            is_whole = is_begun or may_split or not reading.goes_on
            return reading if is_whole or reading.hole else self._hold(file, reading)
        except OSError as error:
            text = f"cannot be read: {error.strerror or error}"
            return Reading(True, file.offset, 0, error=text)

    def _hold(self, file: FollowedFile, reading: Reading) -> Reading:
        """Return the first piece of an over-long record once it has ended; nothing before."""
        held = replace(reading, run=b"", rest=b"", goes_on=False)
        if reading.padding:  # and so no newline before it
            unfinished = len(reading.run) + reading.unfinished
            return replace(held, unfinished=unfinished, holds_lines=b"\n" in reading.run)
        read, cutter = partial(os.pread, self._open[file.entry.key]), self._cutter_of(file)
        blocks = max(1, min(_MOST_BLOCKS, _MOST_SEARCHED // cutter.block_size))
        has_end, reached, found = cutter.search_end(read, reading, blocks)
        if has_end:
            return reading
        unfinished = reached - file.offset
        return replace(held, unfinished=unfinished, holds_lines=found.lines > 0, searched=found)

    def _read(self, file: FollowedFile, limit: int) -> Reading:
        descriptor = self._open[file.entry.key]
        before = os.fstat(descriptor).st_size
        start = file.progress.identity.tail_length
        begin = file.offset - start

        def fill(most: int) -> int:
            wanted = max(0, min(start + most, before - begin))
            if wanted > len(self._buffer):
                largest = start + max(self.limits.block_size, self.limits.max_line) + 1
                self._buffer = bytearray(min(2 * wanted, largest))
            with memoryview(self._buffer) as view:
                return os.preadv(descriptor, [view[:wanted]], begin)

        end = self._fill(file, fill, limit)
        nuls, padding, hole = self._find_nuls(descriptor, begin, (start, end), before)
        # a file that begins as it did after the reading was not truncated before or during it
        head = os.pread(descriptor, len(file.progress.beginning), 0)
        after = os.fstat(descriptor)
        size, modified = after.st_size, after.st_mtime_ns
        is_intact = (
            fingerprint(self._buffer[:start]) == file.progress.identity.tail_hash
            and end >= start
            and min(size, before) >= max(file.size, begin + end)
            and head == file.progress.beginning
        )
        if not is_intact:
            return Reading(False, size, modified)
        if end == start and before > file.offset:
            return Reading(True, size, modified, error="has fewer bytes than its size says")
        reading = self._split(file, nuls, size, modified, padding)
        if not (hole and reading.reaches(nuls - start) and b"\n" not in reading.run):
            return reading
        return reading.end_at_hole(hole)

    def _find_nuls(
        self, descriptor: int, begin: int, within: tuple[int, int], size: int
    ) -> tuple[int, int, int]:
        """Return where NULs begin in the buffer that are no content; how long padding or hole are.

        `begin` is the position of the buffer in the file, `within` the part that is searched.
        """
        start, end = within
        if self._buffer.find(0, start, end) < 0:
            return end, 0, 0
        first = find_nuls(self._buffer, start, end, begin)
        if first == end:
            return end, 0, 0
        nuls = measure_nuls(descriptor, begin + first, size)
        length = nuls.end - begin - first
        if nuls.end == size:
            return first, length, 0
        return (first, 0, length) if nuls.is_hole or not length else (end, 0, 0)

    def _decompress(self, file: FollowedFile, compression: Compression, limit: int) -> Reading:
        content, descriptor = self._decompressor_of(file, compression)
        start = file.progress.identity.tail_length
        begin = file.offset - start
        modified = os.fstat(descriptor).st_mtime_ns

        def fill(most: int) -> int:
            data = content.read(begin, file.offset + most)
            self._buffer[: len(data)] = data
            return len(data)

        end = self._fill(file, fill, limit)
        has_ended = begin + end == content.reached and content.is_at_end()
        if fingerprint(self._buffer[: min(start, end)]) != file.progress.identity.tail_hash:
            return Reading(False, content.reached, modified)
        nuls = find_nuls(self._buffer, start, end, begin)
        if any(self._buffer[nuls:end]):
            nuls = end  # lines follow
        size = max(file.size, begin + end + 1)
        reading, reached = self._split(file, nuls, size, modified), begin + end
        if not has_ended and end - nuls >= LEAST_HOLE and reading.reaches(nuls - start):
            reached, has_ended = _skip_nuls(content, reached)
            if not has_ended and b"\n" not in reading.run:
                return reading.end_at_hole(reached - begin - nuls)
        if not has_ended:
            return self._split(file, end, size, modified)
        return replace(
            reading,
            size=reached,
            padding=reached - begin - nuls,
            is_complete=content.is_complete,
            damage=content.damage,
        )

    def _decompressor_of(
        self, file: FollowedFile, compression: Compression
    ) -> tuple[Decompressor, int]:
        key = file.entry.key
        descriptor = self._open[key]
        if self._decompressor is None or self._decompressor[:2] != (key, file.file):
            self._decompressor = key, file.file, Decompressor(descriptor, compression)
        return self._decompressor[2], descriptor

    def _fill(self, file: FollowedFile, fill: Callable[[int], int], limit: int) -> int:
        """Fill the buffer; up to the longest record if none ends within the limit."""
        start, cutter = file.progress.identity.tail_length, self._cutter_of(file)
        limit = min(limit, self.limits.block_size)
        for length in cutter.lengths(limit):
            end = fill(length)
            if end - start < length or cutter.is_enough(self._buffer, start, end, limit):
                break
        return end

    def _split(
        self, file: FollowedFile, end: int, size: int, modified: int, padding: int = 0
    ) -> Reading:
        """Return the whole records in the buffer up to `end`, and the unfinished one behind it."""
        start = file.progress.identity.tail_length
        reading = self._cutter_of(file).split(self._buffer, start, end)
        return replace(reading, size=size, modified=modified, padding=padding)


def _skip_nuls(content: Decompressor, at: int) -> tuple[int, bool]:
    """Return where NULs end, or 64 MiB on, and whether the content ends there."""
    most = at + _MOST_SKIPPED
    while at < most:
        begin = max(0, at - TAIL_BYTES)  # the bytes before an offset are asked for again
        data = content.read(begin, at + _NULS_STEP)[at - begin :]
        if written := data.lstrip(b"\0"):
            return at + len(data) - len(written), False
        at += len(data)
        if len(data) < _NULS_STEP:
            return at, content.is_at_end()
    return at, False
