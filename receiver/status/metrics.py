"""The metrics of a receiver for Prometheus, made from its report when Prometheus asks.

Imported only with `--listen`. Names follow the conventions of Prometheus: base units, `_total` for what only grows.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from broker.app.pages import metrics_page
from receiver.consume.assignment import Cause
from receiver.consume.judging import FindingKind
from receiver.meter import ReceiverView, Standing

__all__ = ["ReceiverMetrics"]

_SECOND = 1_000_000_000
_COUNTERS: dict[str, tuple[str, Callable[[Standing], float]]] = {
    "lines": ("Lines that are committed.", lambda p: p.lines),
    "bytes": ("Bytes of lines that are committed.", lambda p: p.bytes),
    "messages": ("Messages that are committed.", lambda p: p.messages),
    "batches": ("Batches that are committed.", lambda p: p.batches),
    "batch_seconds": ("Seconds of work on batches.", lambda p: p.seconds),
    "quarantined": ("Messages that were set aside.", lambda p: p.quarantined),
}
_GAUGES: dict[str, tuple[str, Callable[[Standing], float]]] = {
    "offset": ("The first sequence that no file holds yet.", lambda p: p.next),
    "epoch": ("How often the partition has changed hands.", lambda p: p.epoch),
    "lag_messages": ("Messages that waited after the last batch.", lambda p: p.pending),
    "last_commit_timestamp_seconds": (
        "When a batch was committed last; 0 before the first.",
        lambda p: p.committed_at / _SECOND,
    ),
    "lost": (
        "1 since another receiver has taken the partition over.",
        lambda p: bool(p.successor),
    ),
}


class ReceiverMetrics:
    """The page of `/metrics`."""

    def __init__(self, view: ReceiverView) -> None:
        """Look at nothing yet; `page` returns the metrics as of the time when it is called."""
        self._view = view
        self.page = metrics_page(self._collect)

    def _collect(self) -> Iterator[Metric]:
        partitions, now = self._view.partitions, self._view.now
        for kind, families in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, (text, value) in families.items():
                family = kind(f"logreceiver_{name}", text, labels=["partition"])
                for one in partitions:
                    family.add_metric([str(one.partition)], value(one))
                yield family
        text = "Age of the last received line while others wait behind it."
        lag = GaugeMetricFamily("logreceiver_lag_seconds", text, labels=["partition"])
        for one in partitions:
            lag.add_metric([str(one.partition)], one.lag_seconds(now))
        yield lag
        yield _blocked(partitions)
        yield from _findings(partitions)
        yield GaugeMetricFamily(
            "logreceiver_waiting", "1 while it waits for the broker.", bool(self._view.away)
        )
        yield InfoMetricFamily(
            "logreceiver_build",
            "Version of the receiver and of Python.",
            {"version": version("nats-logship"), "python": platform.python_version()},
        )


def _blocked(partitions: Sequence[Standing]) -> Metric:
    text, labels = "1 while a partition cannot go on, by why.", ["partition", "cause"]
    family = GaugeMetricFamily("logreceiver_blocked", text, labels=labels)
    for one in partitions:
        for cause in Cause:
            is_it = one.blocked is not None and one.blocked.cause is cause
            family.add_metric([str(one.partition), cause.value], is_it)
    return family


def _findings(partitions: Sequence[Standing]) -> Iterator[Metric]:
    labels = ["partition", "kind"]
    text = "Blocks that did not follow their predecessor."
    counts = CounterMetricFamily("logreceiver_findings", text, labels=labels)
    text = "Bytes of source files that these were about."
    sizes = CounterMetricFamily("logreceiver_finding_bytes", text, labels=labels)
    for one in partitions:
        for kind in FindingKind:
            counts.add_metric([str(one.partition), kind.value], one.found[kind.value])
            sizes.add_metric([str(one.partition), kind.value], one.found_bytes[kind.value])
    yield from (counts, sizes)
