"""Spools an input into files until its lines are acknowledged, and reads them from there.

    input ──▶ <state-dir>/<host>/<name>-<number>-<file id>-<start> ──read──▶ blocks
                                  acknowledged: removed ◀─────────┘

The name of a segment says what its position is, whatever it contains. A thread copies from the
start of the program on, with or without a broker. Segments survive the end of the process, but not
a crash of the machine: nothing is synced.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nats_logship.app.exits import OperatorError
from nats_logship.app.files import Folder
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.cutter import Cutter
from shipper.sources.files.identity import identify
from shipper.sources.files.progress import Progress
from shipper.sources.files.records import RecordRules
from shipper.sources.inputs import CHUNK, STANDARD_INPUT, Input, NamedPipe
from shipper.sources.notices import Notice, NoticeKind
from shipper.sources.source import Source, SourceState
from shipper.sources.spool_folder import SpoolFolder, list_inputs, name_input, open_home
from shipper.sources.spooled import SEGMENT, SpooledFile
from shipper.sources.worker import Worker

_MOST = 256 * 1024 * 1024
"""Bytes of unacknowledged input: minutes of a busy host without a broker, and little for a disk."""
_PAUSE = 0.01  # seconds after a small read: a copy for each line would use a whole core
_RETRY = 1.0  # seconds
_READ_AGAIN = 10.0  # seconds after a read failed: other sources wait while a bad disk is tried
_SECOND = 1_000_000_000
_LAST_COPY = 0.5  # seconds to copy the rest of the input when the program must end
_REMEMBERED = 64  # files that are marked as ended
logger = logging.getLogger(__name__)


class Spool(Source):
    """The files of one input: those that earlier runs left, then that of this run.

    A named pipe goes on in the last one, until the machine boots. Nothing is copied while 256 MiB
    are not acknowledged. `stored` is called by threads, too.
    """

    def __init__(
        self,
        input_: Input,
        home: Folder,
        *,
        new_id: Callable[[], str],
        clock: Callable[[], int],
        wake: asyncio.Event,
        records: RecordRules,
    ) -> None:
        """Do nothing yet; see `begin`."""
        self.wake = wake
        self._rules = records
        self.stored: Callable[[str], int] = lambda _: 0
        self._obstacle = ""
        self._input = input_
        self._folder = SpoolFolder(home, input_.path)
        self._new_id = new_id
        self._clock = clock
        self._number = 0
        self._files: list[SpooledFile] = []
        self._cursors: Mapping[str, Cursor] = {}  # of the last `rewind`
        self._removed = deque[str](maxlen=_REMEMBERED)
        self._has_ended = self._is_stopping = self._has_news = False
        self._error = ""
        self._unfinished = 0  # bytes of a last line, as of the last gathering
        self._readable_since: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sizes = 256 * 1024, 1024 * 1024  # of blocks and lines
        self._worker = Worker("spool")
        self._thread = threading.Thread(target=self._fill, daemon=True)

    def begin(self) -> bool:
        """Take over the files that no other process holds, and begin to copy.

        Returns False, and does nothing, while another process reads the same pipe. Raises OSError;
        may then be tried again.
        """
        if self._input.is_kept and not self._folder.lock_input():
            self._obstacle = f"another shipper on this machine reads {self._input.path}"
            return False
        for number, id_, segments in self._folder.take_over():
            self._number = number
            if segments:
                self._files.append(SpooledFile(number, self._begin_at(id_), segments))
        # a pipe goes on where the run that wrote the last one was killed, perhaps inside a line
        goes_on = self._input.is_kept and not self._folder.has_rebooted
        for file in self._files[: -1 if goes_on else None]:
            file.is_closed = True
        self._input.open()  # last, so that it is not open twice if anything fails
        self._note_obstacle("")
        self._thread.start()
        return True

    @property
    def _has_begun(self) -> bool:
        return self._thread.ident is not None

    def _begin_at(self, file: str) -> Progress:
        return Progress.begin(self._cursors.get(file) or self._start_of(file), 0, b"")

    def _start_of(self, file: str) -> Cursor:
        return Cursor(file, self._input.path, 0, identify(0, b"", b""), self._clock())

    # what the loop asks for

    async def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read each file on from its cursor, or from its beginning."""
        await self._worker.do(self._rewind, cursors)

    def _rewind(self, cursors: Mapping[str, Cursor]) -> None:
        self._cursors = cursors
        for one in tuple(self._files):
            one.rewind(cursors.get(one.file) or self._start_of(one.file))

    async def scan(self) -> list[Notice]:
        """Remove what is acknowledged; begin, if the shipper that is taken over has ended."""
        await self._worker.do(self._scan)
        return []

    def _scan(self) -> None:
        if not (self._has_begun or self._is_stopping):
            try:
                self.begin()
            except OSError as error:
                self._note_obstacle(f"{error.filename}: {error.strerror}")
        self._remove_acknowledged()

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines, one file after the other."""
        return await self._worker.do(self._gather, budget)

    def _gather(self, budget: int) -> list[Block]:
        self._has_news = False
        self._remove_acknowledged()
        blocks: list[Block] = []
        for file in tuple(self._files):
            found = self._read_file(file, budget)
            budget -= sum(len(block.lines) for block in found)
            blocks += found
            if file.unread and not file.problem:
                break
        self._unfinished = sum(one.unread for one in self._readable_files) if budget > 0 else 0
        self._readable_since = self._readable_since if self._unread > self._unfinished else None
        return blocks

    def _read_file(self, file: SpooledFile, budget: int) -> list[Block]:
        """Return about `budget` bytes of a file; none for some time after it cannot be read."""
        blocks: list[Block] = []
        if time.monotonic() < file.retry_at:
            return blocks
        try:
            while budget > 0 and (block := self._read(file, budget)):
                blocks.append(block)
                budget -= len(block.lines)
        except OSError as error:
            self._note_problem(file, self._describe(error))
            file.retry_at = time.monotonic() + _READ_AGAIN
        return blocks

    def _read(self, file: SpooledFile, budget: int) -> Block | None:
        rules, sizes = self._rules, self._sizes
        file.skip_hole()
        cutter = Cutter(file.progress, rules.records_of(self._input.path), *sizes, rules.lines)
        block = file.read(cutter, min(budget, sizes[0]), rules.timeout, self._clock())
        self._note_problem(file, "")
        return block

    def _note_problem(self, file: SpooledFile, text: str) -> None:
        _log_change(file.problem, text, f"the spool of {self._input.name}")
        file.problem = text

    def _describe(self, error: OSError) -> str:
        return f"{self._folder.path / (error.filename or '')}: {error.strerror}"

    def _remove_acknowledged(self) -> None:
        for one in tuple(self._files):
            if one.remove(self.stored(one.file), self._folder.remove):
                self._files.remove(one)
                self._removed.append(one.file)

    def await_change(self) -> None:
        """Have `wake` set when something was copied since the last gathering."""
        self._loop = asyncio.get_running_loop()
        if self._has_news:
            self.wake.set()

    def resize(self, block_size: int, max_line: int, max_entry: int) -> None:
        """Give blocks and lines of these sizes from now on, in bytes; nothing may be gathering."""
        self._sizes = block_size, max_line

    def change(self, records: RecordRules) -> None:
        """Cut records by other rules from the next read on."""
        self._rules = records
        self.wake.set()

    async def close(self) -> list[str]:
        """Copy the present input within half a second; return what was not copied."""
        return await self._worker.do(self._close)

    def _close(self) -> list[str]:
        self._is_stopping = True
        if not self._has_begun:
            return []
        self._input.wake()
        self._thread.join(_LAST_COPY)
        is_copied = not (self._thread.is_alive() or self._obstacle)
        is_complete = self._has_ended or (is_copied and self._input.is_kept)
        unread = 0 if is_complete else self._input.unread
        self._remove_acknowledged()
        why = self._obstacle and f" ({self._obstacle})"
        text = f"{unread} bytes of {self._input.name} were not read{why}: they are lost unless "
        return [f"{text}another process holds the pipe open"] if unread else []

    def owns(self, cursor: Cursor) -> bool:
        """Whether it is one of this input's: they have its path."""
        return cursor.path == self._input.path

    # what it knows

    def files(self) -> list[SourceState]:
        """Return one state for all files: its id is that of the first one that is not stored."""
        files = tuple(self._files)
        left = [one for one in files if self.stored(one.file) < one.end] or files[-1:]
        stored = self.stored(left[0].file) if left else 0
        end = stored + self._behind
        state = SourceState(
            file=left[0].file if left else "",
            path=self._input.path,
            condition="ended" if self._has_ended else "spooling",
            position=end - self._unread,
            end=end,
            readable_since=self._readable_since,
            unfinished=self._unfinished,
            problem=self.obstacle,
            is_awaited=not self._has_ended or bool(self._readable_files),
        )
        return [state]

    @property
    def _behind(self) -> int:
        """Spooled bytes that are not acknowledged."""
        return sum(one.behind(self.stored(one.file)) for one in tuple(self._files))

    @property
    def _unread(self) -> int:
        return sum(one.unread for one in tuple(self._files))

    @property
    def _readable_files(self) -> list[SpooledFile]:
        """The files that have unread bytes and can be read."""
        return [one for one in tuple(self._files) if one.unread and not one.problem]

    @property
    def ended_files(self) -> set[str]:
        """The ids of the files that were removed last."""
        return set(self._removed)

    @property
    def is_inside_line(self) -> bool:
        """Whether the last piece of an over-long record was not read, and can be, now or soon.

        Not if the record may have no end: other sources must not wait for it.
        """
        readable = self._readable_files
        if not (readable and readable[0].is_inside_line):
            return False
        unread = sum(one.unread for one in readable)
        return unread > self._unfinished or readable[0].holds_lines

    @property
    def has_ended(self) -> bool:
        """Whether the input has ended, and all of it was read."""
        return self._has_ended and not self._unread

    @property
    def poll_in(self) -> float:
        """The seconds until a record is waited for no longer."""
        files = tuple(self._files)
        held = [one.grown_at for one in files if one.holds_lines and not one.problem]
        left = (at + self._rules.timeout - time.monotonic_ns() for at in held)
        return max(0.0, min(left, default=math.inf) / _SECOND)

    @property
    def busy_since(self) -> float | None:
        """When the present read of a file began."""
        return self._worker.busy_since

    @property
    def obstacle(self) -> str:
        """Why nothing can be copied, and why files cannot be read."""
        problems = [one.problem for one in tuple(self._files)]
        return "; ".join(filter(None, [self._obstacle, *problems]))

    @property
    def troubles(self) -> list[Notice]:
        """Why the input was not read to its end."""
        error = self._error
        return [Notice(NoticeKind.UNREADABLE, self._input.name, error)] if error else []

    # what the copying thread does

    def _fill(self) -> None:
        while not self._has_ended:
            self._input.wait()
            copied = 0
            try:
                if self._behind < _MOST:
                    copied = self._copy()
                self._note_obstacle("")
            except OSError as error:
                self._note_obstacle(self._describe(error))
            if copied or self._has_ended:
                self._note_news()
            if self._is_stopping and not copied:
                return
            if copied < CHUNK // 2:
                time.sleep(_RETRY if self._obstacle else _PAUSE)

    def _note_news(self) -> None:
        self._readable_since = self._readable_since or self._clock()
        self._has_news = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended, the process is about to
                self._loop.call_soon_threadsafe(self.wake.set)

    def _note_obstacle(self, text: str) -> None:
        _log_change(self._obstacle, text, self._input.name)
        self._obstacle = text

    def _copy(self) -> int:
        """Copy from the input to the last file, and return how many bytes; raises OSError."""
        file = self._open_file()
        try:
            copied = file.append(self._input.move)
        except OperatorError as error:
            self._error, copied = str(error), 0
        if copied == 0:
            if self._input.is_kept:  # the next writer's lines follow
                file.finish()
            self._has_ended = self._input.has_ended()
        file.is_closed = self._has_ended
        return copied or 0

    def _open_file(self) -> SpooledFile:
        """Return the file that is appended to, whose last segment has space; raises OSError."""
        last = self._files[-1:]  # which another thread may remove now, if it is closed
        if last and not last[0].is_closed:
            file = last[0]
            if file.segments[-1].size >= SEGMENT:
                file.segments.append(self._folder.make(file.number, file.file, file.end))
            return file
        self._number += 1
        name = self._new_id()
        segment = self._folder.make(self._number, name, 0)
        self._files.append(SpooledFile(self._number, self._begin_at(name), [segment]))
        return self._files[-1]


def _log_change(before: str, text: str, name: str) -> None:
    if text and text != before:
        logger.warning("%s; %s is not read until that works", text, name)
    elif before and not text:
        logger.info("%s is read again", name)


def open_spools(
    paths: Collection[str],
    state_dir: Path,
    host: str,
    *,
    once: bool,
    takes_over: bool,
    **given: Any,
) -> list[Spool]:
    """Begin to spool inputs to the folder of a host in `state_dir`; with `once` to their end.

    A pipe that another shipper reads is read once that has ended, if its host is taken over.
    `given` is as a `Spool` takes it. Raises `OperatorError`.
    """
    wanted = set(map(name_input, paths))
    try:
        home = open_home(state_dir, host)
        for name, path in list_inputs(home).items():
            if name not in wanted:
                logger.warning("%s is spooled and not shipped: --file does not name it", path)
        inputs = (Input() if one == STANDARD_INPUT else NamedPipe(one, once=once) for one in paths)
        spools = [Spool(one, home, **given) for one in inputs]
        for spool in spools:
            if not (spool.begin() or takes_over):
                raise OperatorError(f"{spool.obstacle}; stop it first, or use --take-over")
    except OSError as error:
        raise OperatorError(
            f"cannot spool {' and '.join(paths)}: {error.filename}: {error.strerror}; "
            "check --state-dir and --file"
        ) from None
    return spools
