"""What an agent needs of what it reads: files, pipes, standard input, the journal.

The agent, its loop and its status know nothing else of a source. Several sources are one
(`several.Sources`).
"""

import asyncio
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, Protocol

from nats_logship.wire.message import Unit
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.notices import Notice


class SourceState(NamedTuple):
    """What a source shows of one file, one pipe or one journal.

    `position`, `end` and `unfinished` count `unit`; times are nanoseconds since the epoch.
    """

    file: str  # the id of its positions
    path: str  # where it is now; `-` is standard input
    condition: str  # what happens to it, such as `following`
    position: int  # the next to read
    end: int  # where its content ends, as far as that is known
    readable_since: int | None = None  # when there was first something to read; None without
    unfinished: int = 0  # of a last line that is not read yet
    problem: str = ""  # why it cannot be read
    is_awaited: bool = False  # more is expected, for which `--once` waits
    inode: int = 0  # of a file
    unit: Unit = "bytes"


class Source(Protocol):
    """Gives blocks of lines, from positions on; used from the event loop by one caller.

    A position is an integer, and belongs to a file id. `rewind` comes before the first scan.

    `wake` is given by the caller, and set when something may have come. `stored` returns how far a
    file id is acknowledged: what would be lost with the process is kept until then.
    """

    wake: asyncio.Event
    stored: Callable[[str], int]

    # what the loop asks for

    async def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read on from these cursors, all of which it `owns`, and from the start of what is new.

        What is open stays open. Blocks that were gathered before are forgotten.
        """

    async def scan(self) -> list[Notice]:
        """Find out what is there now; return what changed since the last scan."""

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that can be read now, and read on behind them.

        Empty if there is nothing to read, or while the end of an over-long line is searched. The
        pieces of such a line follow one another.
        """

    def await_change(self) -> None:
        """Have `wake` set once something changed since the last scan or gathering."""

    def resize(self, block_size: int, max_line: int, max_entry: int) -> None:
        """Give blocks, lines and entries of these sizes from now on, in bytes.

        Longer lines come in pieces. An entry of a journal has no pieces: it is cut. Nothing may be
        gathering.
        """

    async def close(self) -> list[str]:
        """Stop, and keep for the next start what would be lost with the process.

        Returns a sentence on each loss.
        """

    def owns(self, cursor: Cursor) -> bool:
        """Whether a position may be one of this source."""

    # what it knows

    def files(self) -> list[SourceState]:
        """Return the state of everything that it reads, as it was seen last."""

    def start_cursors(self, but: Container[str]) -> list[Cursor]:
        """Return where reading began in what was found, but for the ids in `but`.

        The broker gets them before a line is read, if the next start needs them.
        """
        return []

    @property
    def ended_files(self) -> set[str]:
        """The ids of files of which nothing more will come, and all is stored or reported."""

    @property
    def deleted_files(self) -> list[str]:
        """The ids of files that were deleted and are not open any more, oldest first."""
        return []

    @property
    def has_decided(self) -> bool:
        """Whether the last scan decided on all that it saw; until then a cursor may find a file."""
        return True

    def may_find(self, cursor: Cursor) -> bool:
        """Whether a later scan may find what a position belongs to, which is not followed now."""
        return self.owns(cursor) and not self.has_decided

    @property
    def is_scan_due(self) -> bool:
        """Whether a scan would find something new, or the poll interval is over."""
        return False

    @property
    def poll_in(self) -> float:
        """The seconds after which to gather again even if nothing sets `wake`."""

    @property
    def is_inside_line(self) -> bool:
        """Whether the last block ends inside a line or record of which more comes next.

        More can be read now, or once the record has ended, which is not waited for without end.
        """
        return False

    @property
    def has_ended(self) -> bool:
        """Whether all was read, and nothing more can ever come."""
        return False

    @property
    def busy_since(self) -> float | None:
        """When the present scan or read began, by the clock of the event loop; None without."""

    @property
    def troubles(self) -> list[Notice]:
        """What kept paths from being read at the last scan."""

    @property
    def obstacle(self) -> str:
        """Why nothing can be read at all, as a sentence for people; empty if all is well."""
        return ""

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return 0
