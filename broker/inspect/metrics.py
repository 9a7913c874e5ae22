"""`logbroker run --metrics ADDR`: `/metrics` and `/healthz` of a broker, from its status document.

The status is polled every ten seconds, so a scrape costs the broker nothing, and is answered while
nats-server hangs. `/healthz` is 503 while this nats-server does not answer, or stores nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from broker.inspect.checks import CHECKS, find_worst, judge
from broker.inspect.collect import attempt, observe
from broker.inspect.hosts import HostStatus, collect_hosts
from broker.inspect.status import BrokerStatus
from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.pages import Page, health_page, metrics_page, page_server
from nats_logship.app.text import printable
from nats_logship.client.connection import Connection

_STATUS_EVERY, _HOSTS_EVERY = 10.0, 60.0  # seconds
_SILENT = 3600.0  # seconds
_STREAM = (
    *("messages", "bytes", "max_bytes", "max_age_seconds"),
    *("lost_messages", "current_replicas", "wanted_replicas"),
)
_TABLE = ("behind", "behind_seconds", "between_runs", "files")
_Row = tuple[Sequence[str], float | None]


async def serve_metrics(connection: Connection, address: Address, name: str) -> None:
    """Serve both pages of the broker `name` until cancelled.

    Raises `ConfigurationError` for an unusable address.
    """
    metrics = _Metrics(connection, name)
    pages = {"/metrics": metrics_page(metrics.collect), "/healthz": metrics.health}
    async with page_server(address, pages, "--metrics"):
        while True:
            await metrics.poll()
            await asyncio.sleep(_STATUS_EVERY)


class _Metrics:
    """The newest status of the broker, and its hosts."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self._status: BrokerStatus | None = None
        self._trouble = "starting"
        self._hosts: list[HostStatus] = []
        self._hosts_at = float("-inf")

    async def poll(self) -> None:
        """Ask for the status, and once a minute for the hosts."""
        connection, now = self._connection, time.monotonic()
        is_due = not self._hosts or now - self._hosts_at >= _HOSTS_EVERY
        try:
            self._status, self._trouble = await observe(connection)
            if self._status is not None and is_due:
                hosts, _ = await attempt(connection, collect_hosts(connection), _HOSTS_EVERY)
                if hosts is not None:
                    self._hosts, self._hosts_at = hosts, now
        except ConfigurationError as error:  # an entry of LOGS_CONFIG that a person has to correct
            self._status, self._trouble = None, str(error)

    def health(self) -> Page:
        """Return the page of `/healthz`."""
        nodes = self._status.nodes if self._status else ()
        frozen = (
            f"{one.name}: {one.frozen}" for one in nodes if one.name == self._name and one.frozen
        )
        return health_page(self._trouble or ", ".join(frozen))

    def collect(self) -> Iterator[Metric]:
        """Yield the families of `/metrics`."""
        text = "Result of `logbroker check`: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
        found = [([one], find_worst(judge([one], self._status, self._trouble))) for one in CHECKS]
        yield _make_gauge("check_status", text, ["check"], found)
        if self._status is not None:
            yield from _collect_status(self._status)
        if self._hosts_at > 0:
            silences = [host.silent_seconds for host in self._hosts]
            silent, longest = sum(s >= _SILENT for s in silences), max(silences, default=0.0)
            text = "Hosts without a message for an hour."
            yield _make_gauge("silent_hosts", text, [], [([], silent)])
            text = "Longest time since a host's last message, over all hosts that have messages."
            yield _make_gauge("longest_silence_seconds", text, [], [([], longest)])


def _make_gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
    """Return a family of numbers; unknown ones are left out."""
    family = GaugeMetricFamily(f"logbroker_{name}", text, labels=labels)
    for values, number in rows:
        if number is not None:
            family.add_metric(list(map(printable, values)), float(number))
    return family


def _collect_status(status: BrokerStatus) -> Iterator[Metric]:
    names = ("answer_seconds", "hosts", "store_used", "rounds_per_second", "interval_seconds")
    yield from _make_gauges("", [], [([], status)], *names)
    streams = [([one.name], one) for one in status.streams]
    yield from _make_gauges("stream_", ["stream"], streams, *_STREAM)
    partitions = [([str(one.partition), one.stream], one) for one in status.partitions]
    yield from _make_gauges(
        "partition_", ["partition", "stream"], partitions, "behind", "behind_seconds"
    )
    tables = [([one.table, one.id], one) for one in status.tables if one.readable]
    yield from _make_gauges("table_", ["table", "id"], tables, *_TABLE)
    lags = [([one.name, one.leader], 0) for one in status.streams if one.leader]
    lags += [([one.name, of.name], of.lag) for one in status.streams for of in one.followers]
    text = "Operations that the replica is behind the leader."
    yield _make_gauge("replica_lag", text, ["stream", "server"], lags)
    yield from _collect_sites(status)
    spaces = [([node.name, name], s) for node in status.nodes for name, s in node.retention.items()]
    yield from _make_gauges("retention_", ["server", "stream"], spaces, "purged_messages")
    found = [(node.name, one) for node in status.nodes for one in node.certificates]
    ends = [([name, one.path], one.not_after.timestamp()) for name, one in found]
    labels = ["server", "certificate"]
    text = "When the certificate ends."
    yield _make_gauge("certificate_end_timestamp_seconds", text, labels, ends)


def _collect_sites(status: BrokerStatus) -> Iterator[Metric]:
    copies = [([one.name, copy.name], copy) for one in status.streams for copy in one.sites]
    labels = ["stream", "site"]
    ages = [(names, one.contact_age) for names, one in copies]
    text = "Time since the last contact with the site; infinite before the first one."
    yield _make_gauge("site_contact_seconds", text, labels, ages)
    text = "Messages that are not copied yet; missing while there is no contact with the site."
    yield _make_gauge("site_behind", text, labels, [(names, one.behind) for names, one in copies])
    missing = [
        ([node.name], None if node.site_links is None else node.site_remotes - node.site_links)
        for node in status.nodes
        if node.site_remotes
    ]
    text = "Sites of --site-remote that the server is not connected to."
    yield _make_gauge("site_links_missing", text, ["server"], missing)


def _make_gauges(
    prefix: str, labels: Sequence[str], rows: Sequence[tuple[Sequence[str], Any]], *names: str
) -> Iterator[Metric]:
    """Yield a family for each of these fields of the status document."""
    for name in names:
        values = [(key, getattr(row, name)) for key, row in rows]
        text = f"{name} of `logbroker status --json`."
        yield _make_gauge(f"{prefix}{name}", text, labels, values)
