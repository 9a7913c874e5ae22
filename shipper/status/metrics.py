"""The pages `/metrics` and `/healthz`, made from the status and the counters at each request.

Imported only with `--listen`: other agents need no Prometheus library.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from nats_logship.app.pages import Page, health_page, metrics_page
from nats_logship.app.program import version_of
from nats_logship.app.text import printable
from shipper.status.report import AgentMeter, HostReport

FILES_SHOWN = 100
"""The most files with a series of their own, those furthest behind; more cost the scraper much."""

_BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)  # seconds


def make_pages(
    report: Callable[[], HostReport], meter: AgentMeter
) -> dict[str, Callable[[], Page]]:
    """Return the makers of the pages, by path; the meter then measures acknowledgements."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    latency = Histogram(
        "logshipper_ack_latency_seconds",
        "From reading the oldest block of a round to its acknowledgement.",
        buckets=_BOUNDS,
        registry=None,
    )
    meter.observe = latency.observe

    def collect() -> Iterator[Metric]:
        yield from _metrics_of(report(), meter)
        yield from latency.collect()
        version = {"version": version_of("nats-logship")}
        yield InfoMetricFamily("logshipper_build", "Version of the shipper.", version)

    def show_health() -> Page:
        shown = report()
        return health_page(shown.unhealthy, shown.held_back or "ok")

    return {"/metrics": metrics_page(collect), "/healthz": show_health}


def _metrics_of(report: HostReport, meter: AgentMeter) -> Iterator[Metric]:
    oldest = max((file.oldest_unshipped_seconds or 0.0 for file in report.files), default=0.0)
    behind: Counter[str] = Counter()  # a deleted file and its successor have the same path
    for file in report.files:
        behind[printable(file.path)] += file.behind_bytes or 0
    files = {path: size for path, size in behind.most_common(FILES_SHOWN) if size}
    lost = {"deleted": 0, "truncated": 0, "unread": 0, **meter.lost}
    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    for kind, name, text, value in (
        (counter, "lines", "Acknowledged lines.", meter.lines),
        (counter, "bytes", "Acknowledged bytes of files.", meter.bytes),
        (counter, "sent_bytes", "Acknowledged bytes of payload.", meter.sent),
        (counter, "rounds", "Acknowledged rounds.", meter.rounds),
        (counter, "lost_entries", "Entries of journals, lost likewise.", meter.lost_entries),
        (gauge, "behind_bytes", "Bytes that are not acknowledged.", report.behind_bytes),
        (gauge, "behind_entries", "Entries of journals, likewise.", report.behind_entries),
        (gauge, "oldest_unshipped_seconds", "Age of the oldest unshipped line.", oldest),
        (gauge, "last_ack_timestamp_seconds", "Last ack, or 0.", (meter.last_ack or 0) / 1e9),
        (gauge, "followed_files", "Files that are followed.", len(report.files)),
        (gauge, "open_files", "Files that are open.", report.open_files),
        (gauge, "troubled_paths", "Paths that are not followed.", len(report.troubles)),
        (gauge, "unread_paths", "Paths that the start did not find.", len(report.unread)),
        (gauge, "paused", "1 while an operator has paused the host.", bool(report.paused)),
        (gauge, "interval_seconds", "Asked for by the broker, or 0.", report.interval_seconds),
        (gauge, "max_rate_bytes", "Of lines per second (--max-rate), or 0.", report.max_rate_bytes),
        (gauge, "rate_held_seconds", "Held back so long, or 0.", report.rate_held_seconds or 0.0),
        (gauge, "waiting", "1 while the broker is waited for.", bool(report.waiting_for)),
    ):
        yield kind(f"logshipper_{name}", text, value)
    for kind, name, text, label, values in (
        (counter, "retries", "Rounds that were tried again.", "reason", report.retries),
        (counter, "lost_bytes", "Bytes lost before they were read.", "reason", lost),
        (gauge, "file_behind_bytes", "Bytes that are not acknowledged.", "path", files),
    ):
        family = kind(f"logshipper_{name}", text, labels=[label])
        for key, number in values.items():
            family.add_metric([key], number)
        yield family
