"""The documents that the console shows: those of `top`, `check` and `hosts`.

The broker is asked once for all open pages. A page that reads slowly gets the newest document, not
each one, so it costs no memory.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import Any

from broker.inspect.checks import CHECKS, judge
from broker.inspect.collect import observe
from broker.inspect.hosts import HostStatus, SavedPositions, collect_hosts, describe_host
from broker.inspect.top import Rates, TopView, watch
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection

_INTERVAL = 2.0  # seconds between views
_HISTORY = 1800  # views: an hour
_CHECKS_EVERY, _HOSTS_EVERY = 10.0, 10.0  # seconds
_SILENT_EVERY = 60.0  # seconds between two counts of silent hosts
_QUIET, _SILENT = 60.0, 900.0  # seconds since a host's last message
_CONNECT = 3.0  # seconds for a connection to the broker
_RETRY, _PATIENCE = 2.0, 60.0  # seconds before the next attempt, and for an answer about hosts
_FAILURES = (ConnectionLost, Rejected, OperatorError, ConfigurationError, TimeoutError)


class Feeds:
    """Asks a broker for all pages."""

    def __init__(self, connection: Connection) -> None:
        """Ask nothing before `run`."""
        self._overview: dict[str, Any] = {}
        self._replaced = asyncio.Event()
        self._connection = connection
        self._history: deque[dict[str, float]] = deque(maxlen=_HISTORY)
        self._checked: dict[str, Any] = {}
        self._rates: dict[str, Any] = {}
        self._hosts: list[HostStatus] = []
        self._hosts_at = float("-inf")
        self._saved = SavedPositions()
        self._asking = asyncio.Lock()

    async def run(self) -> None:
        """Keep the overview current until cancelled; it says so if the broker is away."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._check())

    async def views(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the rates of the last hour, then the newest view, each time there is a new one."""
        yield {"history": list(self._history), "id": "history"}  # it can be closed and opened
        while True:
            replaced = self._replaced
            if self._overview:
                yield self._overview
            await replaced.wait()

    def _put(self, overview: dict[str, Any]) -> None:
        self._overview, replaced = overview, self._replaced
        self._replaced = asyncio.Event()
        replaced.set()

    async def _watch(self) -> None:
        while True:
            try:
                await self._connection.connect(_CONNECT)
                async with aclosing(watch(self._connection, _INTERVAL)) as views:
                    async for view in views:
                        self._show(view)
            except _FAILURES as error:
                self._put({"trouble": str(error)})
            await asyncio.sleep(_RETRY)

    def _show(self, view: TopView) -> None:
        point = {"time": time.time()}  # noqa: TID251 - the axis of a chart
        for name in ("lines", "bytes", "rounds", "lines_out", "bytes_out"):
            point[name] = round(sum(getattr(one, name) for one in view.partitions.values()), 1)
        is_away = view.trouble or self._overview.get("trouble")  # then all came that was missed
        if not (is_away and self._history):
            self._history.append(point)
        document = view.document()
        self._rates = document.pop("hosts")
        now = {"active_hosts": len(self._rates), "point": self._history[-1]}
        self._put(document | self._checked | now)

    async def _check(self) -> None:
        while True:
            with suppress(*_FAILURES):
                status, trouble = await observe(self._connection)
                findings = judge(CHECKS, status, trouble)
                self._checked["checks"] = [one.document() for one in findings]
                if status:
                    found = status.document()
                    names = ("hosts", "nodes", "paused_hosts", "pauses")
                    self._checked["broker"] = {name: found[name] for name in names}
                    receivers = {one.partition: one.receiver for one in status.partitions}
                    self._checked["receivers"] = receivers
                states = [_state_of(one) for one in await self._collect_hosts(_SILENT_EVERY)]
                self._checked["silent_hosts"] = states.count("silent")
            await asyncio.sleep(_CHECKS_EVERY)

    def _require_broker(self) -> None:
        if trouble := self._overview.get("trouble"):
            raise ConnectionLost(trouble)

    async def _collect_hosts(self, age: float) -> list[HostStatus]:
        """Return the hosts, at most so many seconds old; raises what `collect_hosts` raises."""
        async with asyncio.timeout(_PATIENCE), self._asking:
            self._require_broker()
            clock = asyncio.get_running_loop().time
            if clock() - self._hosts_at >= age:
                self._hosts = await collect_hosts(self._connection, self._saved)
                self._hosts_at = clock()
        return self._hosts

    async def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts with their state and rates, at most ten seconds old.

        Raises what `collect_hosts` raises, and `TimeoutError`.
        """
        none = asdict(Rates())
        return [
            one.document() | {"state": _state_of(one), "rate": self._rates.get(one.host, none)}
            for one in await self._collect_hosts(_HOSTS_EVERY)
        ]

    async def host(self, host: str) -> dict[str, Any]:
        """Return the files of a host and its gaps; raises `Rejected`, `ConnectionLost`."""
        self._require_broker()
        found = await describe_host(self._connection, host)
        counts = self._checked.get("receivers", {}).get(found["partition"], {}).get("gaps_of")
        known = counts.get(host, 0) if isinstance(counts, dict) else None  # no answer
        return found | {"gaps": known}


def _state_of(host: HostStatus) -> str:
    """Return the state of a host."""
    if host.paused:
        return "paused"
    if host.silent_seconds >= _SILENT:
        return "silent"
    return "quiet" if host.silent_seconds >= _QUIET else "sending"
