"""The metrics of an agent for Prometheus, made from its status and its counters when Prometheus asks.

Imported only with `--listen`. Names follow the conventions of Prometheus: base units, `_total` for what only grows.
"""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version

from prometheus_client import Histogram, disable_created_metrics
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from broker.app.pages import metrics_page
from broker.app.untrusted import printable
from shipper.publish.waiting import RETRY_CAUSES
from shipper.status.report import AgentView, HostReport

__all__ = ["FILES_SHOWN", "AgentMetrics"]

FILES_SHOWN = 100
"""The most files that have a series of their own: those that are furthest behind. Ten thousand would cost the scraper more than the shipper."""

_BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)  # seconds
_LOSSES = ("deleted", "truncated")
_SECOND = 1_000_000_000


class AgentMetrics:
    """The metrics of the agent that a view shows."""

    def __init__(self, view: AgentView) -> None:
        """Prepare `page`, which returns the page of `/metrics`."""
        self._view = view
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._latency = Histogram(
            "logshipper_ack_latency_seconds",
            "From reading the oldest block of a round to its acknowledgement.",
            buckets=_BOUNDS,
            registry=None,
        )
        view.meter.observe = self._latency.observe
        self.page = metrics_page(self.collect)

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        meter, waiting = self._view.meter, self._view.waiting
        for name, text, value in (
            ("lines", "Lines that are acknowledged.", meter.lines),
            ("bytes", "Bytes of files that are acknowledged.", meter.bytes),
            ("sent_bytes", "Bytes of payload that are acknowledged, compressed.", meter.sent),
            ("rounds", "Rounds that are acknowledged.", meter.rounds),
        ):
            yield CounterMetricFamily(f"logshipper_{name}", text, value)
        retries = {cause: waiting.retries[cause] for cause in RETRY_CAUSES}
        yield _by_reason("retries", "What was tried again, by reason.", retries)
        lost = {**dict.fromkeys(_LOSSES, 0), **meter.lost}
        yield _by_reason(
            "lost_bytes", "Bytes that were lost before they were read, by reason.", lost
        )
        yield from self._gauges(self._view.report())
        yield from self._latency.collect()
        build = {"version": version("nats-logship"), "python": platform.python_version()}
        yield InfoMetricFamily("logshipper_build", "Version of the shipper and of Python.", build)

    def _gauges(self, report: HostReport) -> Iterator[Metric]:
        oldest = max((file.oldest_unshipped_seconds or 0.0 for file in report.files), default=0.0)
        last_ack = (self._view.meter.last_ack or 0) / _SECOND
        open_files = self._view.source.open_files if self._view.source else 0
        for name, text, value in (
            ("behind_bytes", "Bytes that are there and not acknowledged.", report.behind_bytes),
            (
                "oldest_unshipped_seconds",
                "Age of the oldest line that is not acknowledged.",
                oldest,
            ),
            ("last_ack_timestamp_seconds", "When a round was acknowledged last, or 0.", last_ack),
            ("followed_files", "Files that are followed.", len(report.files)),
            ("open_files", "Files that are open.", open_files),
            ("troubled_paths", "Paths that are asked for and not followed.", len(report.troubles)),
            ("paused", "1 while an operator has paused the host.", int(bool(report.paused))),
            ("waiting", "1 while it waits for the broker.", int(bool(report.waiting_for))),
        ):
            yield GaugeMetricFamily(f"logshipper_{name}", text, value)
        yield _behind(report)


def _by_reason(name: str, text: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"logshipper_{name}", text, labels=["reason"])
    for reason, value in values.items():
        family.add_metric([reason], value)
    return family


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
