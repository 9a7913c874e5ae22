"""The numbers of an agent in the form of Prometheus, put together when they are asked for.

Imported only with `--listen`. Names follow the conventions of Prometheus: base units, `_total` for what only grows.
"""

import platform
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from broker.app.exposition import exposed
from broker.app.histogram import Histogram
from broker.app.printable import printable
from shipper.publish.waiting import Cause
from shipper.status.report import HostReport, View

__all__ = ["FILES_SHOWN", "Metrics"]

FILES_SHOWN = 100
"""The most files that have a series of their own: those that are furthest behind. Ten thousand would cost the scraper more than the shipper."""

_LOSSES = ("deleted", "truncated")
_SECOND = 1_000_000_000


class Metrics:
    """The numbers of the agent that a view shows."""

    def __init__(self, view: View) -> None:
        """Look at nothing yet; `page` returns all of them, as they are then."""
        self._view = view
        self.page = exposed(self.collect)

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        report = self._view.report()
        yield from self._counters()
        yield from self._gauges(report)
        yield _behind(report)
        yield _latency(self._view.meter.latency)
        yield InfoMetricFamily(
            "logshipper_build",
            "Version of the shipper and of Python.",
            {"version": version("logship"), "python": platform.python_version()},
        )

    def _counters(self) -> Iterator[Metric]:
        meter = self._view.meter
        for name, text, value in (
            ("lines", "Lines that are acknowledged.", meter.lines),
            ("bytes", "Bytes of files that are acknowledged.", meter.bytes),
            ("sent_bytes", "Bytes of payload that are acknowledged, compressed.", meter.sent),
            ("rounds", "Rounds that are acknowledged.", meter.rounds),
        ):
            yield CounterMetricFamily(f"logshipper_{name}", text, value)
        retries = CounterMetricFamily(
            "logshipper_retries", "What was tried again, by reason.", labels=["reason"]
        )
        for cause in Cause:
            retries.add_metric([cause.value], self._view.waiting.retries[cause])
        yield retries
        lost = CounterMetricFamily(
            "logshipper_lost_bytes",
            "Bytes that went away before they were read, by reason.",
            labels=["reason"],
        )
        for reason in sorted({*_LOSSES, *meter.lost}):
            lost.add_metric([reason], meter.lost[reason])
        yield lost

    def _gauges(self, report: HostReport) -> Iterator[Metric]:
        meter, source = self._view.meter, self._view.source
        oldest = max((file.oldest_unshipped_seconds or 0.0 for file in report.files), default=0.0)
        for name, text, value in (
            ("behind_bytes", "Bytes that are there and not acknowledged.", report.behind_bytes),
            (
                "oldest_unshipped_seconds",
                "Age of the oldest line that is not acknowledged.",
                oldest,
            ),
            (
                "last_ack_timestamp_seconds",
                "When a round was acknowledged last; 0 before the first.",
                (meter.last_ack or 0) / _SECOND,
            ),
            ("followed_files", "Files that are followed.", len(report.files)),
            ("open_files", "Files that are open.", source.open_files if source else 0),
            ("troubled_paths", "Paths that are asked for and not followed.", len(report.troubles)),
            ("waiting", "1 while it waits for the broker.", int(bool(report.waiting_for))),
        ):
            yield GaugeMetricFamily(f"logshipper_{name}", text, value)


def _behind(report: HostReport) -> Metric:
    # two files may have been followed at one path: a deleted one and its successor
    behind: Counter[str] = Counter()
    for file in report.files:
        if file.behind_bytes:
            behind[printable(file.path)] += file.behind_bytes
    family = GaugeMetricFamily(
        "logshipper_file_behind_bytes",
        f"Bytes that are there and not acknowledged, of the {FILES_SHOWN} files furthest behind.",
        labels=["path"],
    )
    for path, size in behind.most_common(FILES_SHOWN):
        family.add_metric([path], size)
    return family


def _latency(latency: Histogram) -> Metric:
    counts = latency.cumulative()
    bounds = [*map(str, map(float, latency.bounds)), "+Inf"]
    return HistogramMetricFamily(
        "logshipper_ack_latency_seconds",
        "From reading the oldest block of a round to its acknowledgement.",
        buckets=list(zip(bounds, map(float, counts), strict=True)),
        sum_value=latency.sum,
    )
