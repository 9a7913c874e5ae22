"""The numbers of a receiver in the form of Prometheus, put together when they are asked for.

Imported only with `--listen`. Names follow the conventions of Prometheus: base units, `_total` for what only grows.
"""

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from broker.app.exposition import exposed
from receiver.consume.outcome import Cause
from receiver.consume.spans import Kind
from receiver.meter import Standing
from receiver.status.view import View

__all__ = ["Metrics"]

_SECOND = 1_000_000_000
_COUNTERS: tuple[tuple[str, str, Callable[[Standing], float]], ...] = (
    ("lines", "Lines that are committed.", lambda s: s.lines),
    ("bytes", "Bytes of lines that are committed.", lambda s: s.bytes),
    ("messages", "Messages that are committed.", lambda s: s.messages),
    ("batches", "Batches that are committed.", lambda s: s.batches),
    ("batch_seconds", "Seconds of work on batches.", lambda s: s.seconds),
    ("quarantined", "Messages that were set aside.", lambda s: s.quarantined),
    (
        "forgotten_files",
        "Source files that were forgotten because their host has too many.",
        lambda s: s.forgotten,
    ),
)
_GAUGES: tuple[tuple[str, str, Callable[[Standing], float]], ...] = (
    ("offset", "The first sequence that no file holds yet.", lambda s: s.next),
    ("epoch", "How often the partition has changed hands.", lambda s: s.epoch),
    ("lag_messages", "Messages that waited after the last batch.", lambda s: s.pending),
    (
        "last_commit_timestamp_seconds",
        "When a batch was committed last; 0 before the first.",
        lambda s: s.committed_at / _SECOND,
    ),
)


class Metrics:
    """The numbers of the receiver that a view shows."""

    def __init__(self, view: View) -> None:
        """Look at nothing yet; `page` returns all of them, as they are then."""
        self._view = view
        self.page = exposed(self.collect)

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        standings = sorted(self._view.meter.partitions.items())
        for name, text, value in _COUNTERS:
            family = CounterMetricFamily(f"logreceiver_{name}", text, labels=["partition"])
            for number, standing in standings:
                family.add_metric([str(number)], value(standing))
            yield family
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(f"logreceiver_{name}", text, labels=["partition"])
            for number, standing in standings:
                gauge.add_metric([str(number)], value(standing))
            yield gauge
        yield self._lag()
        yield _blocked(standings)
        yield _lost(standings)
        yield from _found(standings)
        yield GaugeMetricFamily(
            "logreceiver_waiting",
            "1 while it waits for the broker.",
            int(bool(self._view.waiting_for)),
        )
        yield InfoMetricFamily(
            "logreceiver_build",
            "Version of the receiver and of Python.",
            {"version": version("logship"), "python": platform.python_version()},
        )

    def _lag(self) -> Metric:
        family = GaugeMetricFamily(
            "logreceiver_lag_seconds",
            "Age of the last received line while others wait behind it.",
            labels=["partition"],
        )
        for number in sorted(self._view.meter.partitions):
            family.add_metric([str(number)], self._view.lag(number))
        return family


def _blocked(standings: list[tuple[int, Standing]]) -> Metric:
    family = GaugeMetricFamily(
        "logreceiver_blocked",
        "1 while a partition cannot go on, by why.",
        labels=["partition", "cause"],
    )
    for number, standing in standings:
        for cause in Cause:
            is_it = standing.blocked is not None and standing.blocked.cause is cause
            family.add_metric([str(number), cause.value], int(is_it))
    return family


def _lost(standings: list[tuple[int, Standing]]) -> Metric:
    family = GaugeMetricFamily(
        "logreceiver_lost",
        "1 since another receiver has taken the partition over.",
        labels=["partition"],
    )
    for number, standing in standings:
        family.add_metric([str(number)], int(bool(standing.successor)))
    return family


def _found(standings: list[tuple[int, Standing]]) -> Iterator[Metric]:
    labels = ["partition", "kind"]
    counts = CounterMetricFamily(
        "logreceiver_findings", "Blocks that did not follow their predecessor.", labels=labels
    )
    sizes = CounterMetricFamily(
        "logreceiver_finding_bytes", "Bytes of source files that these were about.", labels=labels
    )
    for number, standing in standings:
        for kind in Kind:
            counts.add_metric([str(number), kind.value], standing.found[kind.value])
            sizes.add_metric([str(number), kind.value], standing.found_bytes[kind.value])
    yield from (counts, sizes)
