"""The systemd journal as a source of the agent."""

import asyncio
from collections.abc import Callable, Container, Mapping
from contextlib import suppress

from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.journal.journal import Journal
from shipper.sources.journal.reader import JournalReader
from shipper.sources.journal.rules import EntryRules, Options
from shipper.sources.notices import Notice, NoticeKind
from shipper.sources.source import Source, SourceState
from shipper.sources.worker import Worker

_CLOSING = 1.0  # seconds
_POLL_EVERY = 0.5  # seconds: journald writes by mmap, which reading a header shows at once


class JournalSource(Source):
    """Reads the journals of one folder; `clock` is nanoseconds since the epoch."""

    stored: Callable[[str], int]

    def __init__(
        self,
        options: Options,
        new_id: Callable[[], str],
        clock: Callable[[], int],
        wake: asyncio.Event,
    ) -> None:
        self.wake = wake
        self._options, self._clock = options, clock
        self._reader = JournalReader(options, new_id, clock)
        self._worker = Worker("journal")
        self._scanned = False
        self._awaited: int | None = None
        self._since: dict[str, int] = {}  # when something unread was first seen, by file id

    # what the loop asks for

    async def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read on from these cursors."""
        self._stop_awaiting()
        await self._worker.do(self._reader.rewind, cursors)

    async def scan(self) -> list[Notice]:
        """Read the headers of the journal files."""
        await self._worker.do(self._reader.journals.check_headers)
        self._scanned = True
        notices, self._reader.journals.notices = self._reader.journals.notices, []
        return notices

    async def gather(self, budget: int) -> list[Block]:
        """Return entries that can be read now."""
        self._stop_awaiting()
        blocks = await self._worker.do(self._reader.gather, budget)
        now = self._clock()
        unread = [one.file for one in self._journals if one.is_unread]
        self._since = {file: self._since.get(file, now) for file in unread}
        return blocks

    def await_change(self) -> None:
        """Have `wake` set when journalctl has printed more."""
        output = self._reader.output
        if output is not None and self._awaited is None:
            self._awaited = output
            asyncio.get_running_loop().add_reader(output, self._note_change)

    def _note_change(self) -> None:
        self._stop_awaiting()
        self.wake.set()

    def _stop_awaiting(self) -> None:
        if self._awaited is not None:
            asyncio.get_running_loop().remove_reader(self._awaited)
        self._awaited = None

    def resize(self, block_size: int, max_line: int, max_entry: int) -> None:
        """Make blocks of this size, and cut longer entries; they are not sent in pieces."""
        self._reader.resize(block_size, max_entry)

    def change(self, rules: EntryRules) -> None:
        """Use other rules from the next run of journalctl on."""
        self._reader.rules = rules

    async def close(self) -> list[str]:
        """End journalctl; the journal keeps what is not shipped."""
        self._stop_awaiting()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self._worker.do(self._reader.close)
        return []

    def owns(self, cursor: Cursor) -> bool:
        """Whether a position counts entries of a journal: it is known in any folder."""
        return cursor.unit == "entries"

    # what it knows

    @property
    def _journals(self) -> list[Journal]:
        return list(self._reader.journals.found.values())

    def files(self) -> list[SourceState]:
        """Return the state of each journal that has files."""
        trouble = self._reader.journals.folder.trouble
        return [
            SourceState(
                file=one.file,
                path=one.path,
                condition="following",
                position=one.covered,
                end=max(one.end, one.position),
                readable_since=self._since.get(one.file),
                problem=(problem := one.problem or trouble),
                is_awaited=not problem and one.is_awaited,
                unit="entries",
            )
            for one in self._journals
            if one.files
        ]

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return where each journal began."""
        now = self._clock()
        return [one.start_cursor(now) for one in self._journals if one.file not in but]

    @property
    def ended_files(self) -> set[str]:
        """The journals that are gone."""
        return self._reader.journals.ended

    @property
    def has_decided(self) -> bool:
        """Whether there was a scan, and files could be read."""
        return self._scanned and not self._reader.journals.folder.trouble

    @property
    def is_scan_due(self) -> bool:
        """Whether something is to be reported."""
        return bool(self._reader.journals.notices)

    @property
    def poll_in(self) -> float:
        """The seconds after which a journal may have grown."""
        return max(_POLL_EVERY, self._reader.pause)

    @property
    def busy_since(self) -> float | None:
        """When the present scan or read began."""
        return self._worker.busy_since

    @property
    def troubles(self) -> list[Notice]:
        """Why journal files cannot be read, or journalctl cannot be run."""
        texts = {self._reader.journals.folder.trouble: None}
        for journal in self._journals:
            texts |= dict.fromkeys([journal.problem, *journal.describe_unopened()])
        return [Notice(NoticeKind.MISSING, self._options.path, one) for one in texts if one]

    @property
    def open_files(self) -> int:
        """A pipe, while journalctl runs."""
        return int(self._reader.output is not None)
