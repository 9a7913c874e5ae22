"""What a running writer of a table has done, and how it is: health, status line, metrics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nats_logship.app.pages import Page, health_page, metrics_page
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND
from nats_logship.client.connection import Connection

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PATIENCE = 300.0  # seconds without a commit while lines wait, beside the interval of commits


@dataclass(slots=True)
class TableMeter:
    """Counts since the start; times are nanoseconds since the epoch, by `clock`.

    `behind` counts the messages that wait in each stream, `files` those of the newest version.
    Lines gather for `every` seconds.
    """

    clock: Callable[[], int]
    connection: Connection
    every: float = 0.0
    started: int = 0
    rows: int = 0
    line_bytes: int = 0
    commits: int = 0
    gaps: int = 0
    files: int = 0
    committed_at: int = 0
    seconds: float = 0.0
    behind: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    _since: int = 0  # when lines began to wait, or rounds to fail

    def note_plan(self, behind: dict[str, int]) -> None:
        """Note what waits in each stream."""
        self.behind = behind
        self._since = (self._since or self.clock()) if any(behind.values()) else 0

    def note_trouble(self, trouble: str) -> None:
        """Note why the last round failed, empty for one that did not."""
        self.trouble = trouble
        if trouble:
            self._since = self._since or self.clock()

    def note_round(self, rows: int, line_bytes: int, seconds: float) -> None:
        """Note a committed round."""
        self.rows += rows
        self.line_bytes += line_bytes
        self.commits += 1
        self.seconds += seconds
        self.committed_at = self.clock()
        self._since = 0

    @property
    def is_ready(self) -> bool:
        """Whether the table is claimed, or the broker is waited for."""
        return bool(self.started or self.connection.away)

    def is_moving(self, most: float) -> bool:
        """Return True: a round that hangs makes `/healthz` say so."""
        return most > 0

    def left(self) -> int:
        """Return how many messages wait."""
        return sum(self.behind.values())

    def health(self) -> Page:
        """Return the page of `/healthz`."""
        return health_page(self._find_problem(), self.status())

    def _find_problem(self) -> str:
        if self.connection.away:
            return f"waiting for the broker: {self.connection.away}"
        if not self.started:
            return "starting"
        waits = (self.clock() - self._since) // SECOND
        if self._since and waits > _PATIENCE + self.every:
            return self.trouble or f"no commit for {waits} s, and lines wait"
        return ""

    def status(self) -> str:
        """Return the state in one line, for the service manager."""
        if problem := self._find_problem():
            return problem
        behind = format_count(sum(self.behind.values()), "message", form=",")
        state = f"{behind} behind, {format_count(self.rows, 'line', form=',')} written"
        return f"{state}; {self.trouble}" if self.trouble else state

    def report(self, _: bytes = b"") -> bytes:
        """Answer the question whether this writer is alive."""
        return b"{}"

    def metrics_page(self) -> Callable[[], Page]:
        """Return a function that makes the page of `/metrics`."""
        return metrics_page(self._collect)

    def _collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, value in (
            ("rows", "Lines that are committed.", self.rows),
            ("bytes", "Bytes of lines that are committed.", self.line_bytes),
            ("commits", "Commits with lines.", self.commits),
            ("gaps", "Rows written to the table gaps.", self.gaps),
            ("round_seconds", "Seconds from the plan of rounds to their commits.", self.seconds),
        ):
            yield CounterMetricFamily(f"logreceiver_table_{name}", text, value)
        text = "When lines were committed last; 0 for never."
        last = self.committed_at / SECOND
        yield GaugeMetricFamily("logreceiver_table_last_commit_timestamp_seconds", text, last)
        text = "Files of the newest version."
        yield GaugeMetricFamily("logreceiver_table_files", text, self.files)
        text = "Messages that are not in the table, at the last poll."
        behind = GaugeMetricFamily("logreceiver_table_lag_messages", text, labels=["stream"])
        for stream, count in self.behind.items():
            behind.add_metric([stream], count)
        yield behind
        text = "1 while rounds fail."
        yield GaugeMetricFamily("logreceiver_table_troubled", text, bool(self.trouble))
