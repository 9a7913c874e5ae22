"""A program's numbers as a page in the form of Prometheus, put together whenever it is asked for.

Imported only with `--listen`.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.app.listening import Page

__all__ = ["exposed"]

_KIND = "text/plain; version=0.0.4; charset=utf-8"


def exposed(collect: Callable[[], Iterable[Metric]]) -> Callable[[], Page]:
    """Return what makes the page of `/metrics`: the families that `collect` yields, and those of the process."""
    registry = CollectorRegistry()
    registry.register(_Collected(collect))
    ProcessCollector(registry=registry)
    return lambda: Page(200, generate_latest(registry), _KIND)


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def describe(self) -> list[Metric]:
        return []  # what there is is known when it is collected

    def collect(self) -> Iterable[Metric]:
        return self._collect()
