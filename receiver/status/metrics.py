"""The metrics of a receiver for Prometheus, made from its meter when Prometheus asks.

Imported only with `--listen`. Names follow Prometheus: base units, `_total` for counters.
"""

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from nats_logship.app.pages import Page, metrics_page
from nats_logship.app.timestamps import SECOND
from nats_logship.wire.message import Unit
from receiver.consume.assignment import Cause
from receiver.meter import Meter, PartitionMeter
from receiver.storage.anomalies import AnomalyKind

_Value = Callable[[PartitionMeter, int], float]
_COUNTERS: dict[str, tuple[str, _Value]] = {
    "lines": ("Lines that are committed.", lambda p, _: p.lines),
    "bytes": ("Bytes of lines that are committed.", lambda p, _: p.bytes),
    "messages": ("Messages that are committed.", lambda p, _: p.messages),
    "batches": ("Batches that are committed.", lambda p, _: p.batches),
    "batch_seconds": (
        "Seconds from the first messages of batches to their commits.",
        lambda p, _: p.seconds,
    ),
    "quarantined": ("Messages that were put into quarantine.", lambda p, _: p.quarantined),
}
_GAUGES: dict[str, tuple[str, _Value]] = {
    "offset": ("The first sequence that no file has yet.", lambda p, _: p.next),
    "epoch": ("How often the partition was claimed, or moved by hand.", lambda p, _: p.epoch),
    "lag_messages": ("Messages that waited after the last batch.", lambda p, _: p.pending),
    "lag_seconds": ("Age of the last received line while others wait.", PartitionMeter.lag_seconds),
    "last_commit_timestamp_seconds": (
        "When a batch was committed last; 0 for never.",
        lambda p, _: p.committed_at / SECOND,
    ),
    "lost": ("1 if another receiver has taken the partition over.", lambda p, _: bool(p.successor)),
}

_SIZES: dict[Unit, str] = {
    "bytes": "Bytes of source files in anomalies.",
    "entries": "Entries of journals in anomalies.",
}


def make_page(meter: Meter) -> Callable[[], Page]:
    """Return a function that makes the page of `/metrics` as of the time of its call."""
    return metrics_page(lambda: _collect(meter))


def _collect(meter: Meter) -> Iterator[Metric]:
    partitions, now = meter.sorted_partitions, meter.clock()
    for kind, families in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
        for name, (text, value) in families.items():
            family = kind(f"logreceiver_{name}", text, labels=["partition"])
            for one in partitions:
                family.add_metric([str(one.partition)], value(one, now))
            yield family
    text = "1 while a partition is blocked, by cause."
    blocked = GaugeMetricFamily("logreceiver_blocked", text, labels=["partition", "cause"])
    text, labels = "Gaps, losses, repeats and doubts.", ["partition", "kind"]
    counts = CounterMetricFamily("logreceiver_anomalies", text, labels=labels)
    sizes = {
        unit: CounterMetricFamily(f"logreceiver_anomaly_{unit}", text, labels=labels)
        for unit, text in _SIZES.items()
    }
    for one in partitions:
        for cause in Cause:
            is_it = one.blocked is not None and one.blocked.cause is cause
            blocked.add_metric([str(one.partition), cause.value], is_it)
        for found in AnomalyKind:
            counts.add_metric([str(one.partition), found.value], one.found[found.value])
            for unit, family in sizes.items():
                size = one.found_sizes[unit][found.value]
                family.add_metric([str(one.partition), found.value], size)
    yield from (blocked, counts, *sizes.values())
    yield GaugeMetricFamily(
        "logreceiver_waiting", "1 while the receiver waits for the broker.", bool(meter.away)
    )
    yield InfoMetricFamily(
        "logreceiver_build",
        "Version of the receiver and of Python.",
        {"version": version("nats-logship"), "python": platform.python_version()},
    )
