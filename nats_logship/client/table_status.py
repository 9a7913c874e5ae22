"""How far a table of `logreceiver table` is written, as programs show it. No I/O."""

from pydantic import BaseModel

from nats_logship.app.text import format_count
from nats_logship.app.timestamps import shorten_time
from nats_logship.app.units import format_rounded


class TableStatus(BaseModel, frozen=True):
    """A table that `logreceiver table` writes, by its entry in LOGS_OFFSETS.

    `behind` is how many messages it may not have yet, `behind_seconds` the age of the oldest of
    them. `running` says whether its owner answers, None if that is unknown. `between_runs`: the
    last run with `--once` has ended in order. `readable` is False for an entry that cannot be read.
    """

    id: str
    table: str = ""
    owner: str = ""
    epoch: int = 0
    committed_at: str = ""
    rows: int = 0
    files: int = 0
    behind: int = 0
    behind_seconds: float = 0.0
    running: bool | None = None
    between_runs: bool = False
    readable: bool = True

    def text(self) -> str:
        """Return its state for a person."""
        if not self.readable:
            return f"{self.id}: its entry cannot be read"
        state = f"{self.behind} behind" if self.behind else "up to date"
        age = f", the oldest for {format_rounded(self.behind_seconds)}" if self.behind else ""
        has = f"{self.rows} rows in {format_count(self.files, 'file')}"
        last = (
            f"last commit {shorten_time(self.committed_at)}" if self.committed_at else "no commit"
        )
        nobody = "runs with --once" if self.between_runs else "nobody"
        owner = nobody if self.running is False else self.owner
        return f"{self.table}: {state}{age}, {has}, {last}, written by {owner} ({self.id})"
