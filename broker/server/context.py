"""Runs the nats-server of `logbroker run`: starts, sets up, reloads and restarts it.

resolve → configuration file → start → ports → provision → ready → reloads → restart or end

Tasks beside the server answer requests, and reload when files of credentials or certificates
change. `background` adds tasks: health, retention, metrics.
"""

import asyncio
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from broker.auth.certificates import read_expiries
from broker.auth.files import CREDENTIALS
from broker.provision.apply import provision_alone, provision_cluster, read_actual
from broker.provision.plan import BeingRestored, plan
from broker.report import (
    CREDENTIALS_SUBJECT,
    NAMES_REQUEST,
    REPORT_SUBJECT,
    NodeReport,
    SpaceReport,
)
from broker.server.nats_conf import KEY_VARIABLE, TlsConf, read_secret, render
from broker.server.process import NatsServer, Ports, find_nats_server, run_nats_server
from broker.server.requests import (
    ConsumerRequests,
    answer_credentials,
    count_site_links,
    listen,
)
from broker.server.resolve import ServerConf, ServerKeys, compute_reserve, resolve
from broker.server.store import (
    list_stored_streams,
    measure_space,
    remove_half_made_streams,
    remove_state,
    write_conf,
    write_state,
)
from broker.settings import BrokerSettings
from broker.topology import Topology, find_mirrored_site
from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.service import merge_reloaded
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message, retry_until_answered

_CLUSTER_PATIENCE = 10.0  # seconds that a reload waits for a cluster
_CHECK_FILES_EVERY = 0.5  # seconds
_RETRY_AFTER = 5.0  # seconds after a failed reload, or a state that was not written
_AT_START = {
    *("store_dir", "listen", "http", "metrics", "server_name", "memory", "site"),
    *("cluster", "cluster_listen", "encryption_key_file"),
}
"""Settings that a reload cannot change."""
logger = logging.getLogger(__name__)


class ServerContext:
    """The nats-server of a broker: its configuration, process and connection, and its health."""

    connection: Connection
    """Logbroker's own connection to the server; set before background tasks start."""
    rounds_per_second: float | None = None
    """The rate of rounds of all hosts; None if it was not measured."""

    def __init__(
        self, settings: BrokerSettings, folder: Path, background: Sequence["Background"] = ()
    ) -> None:
        """Resolve the configuration.

        `folder` is absolute and locked by the caller; `background` makes the tasks that run beside
        a ready server. Raises `OperatorError`.
        """
        self.folder = folder
        self.retention: dict[str, SpaceReport] = {}
        """The state of retention by stream, for the report."""
        self.infos: dict[str, Mapping[str, Any]] = {}
        """The newest answer to STREAM.INFO of each stream, which retention asks for."""
        self.frozen = ""
        """The failed write after which nats-server stores nothing more; empty if there was none."""
        self._background = background
        self._cluster_lacks = ""  # why the cluster is not set up yet
        self._mirror: str | None = None  # the site that this site is a mirror of
        self._binary = find_nats_server()
        self._keys = ServerKeys()
        self._environment: dict[str, str] = {}
        if key_file := settings.encryption_key_file:
            # nats-server parses the value of a variable as configuration
            secret = read_secret(key_file, "--encryption-key-file")
            self._environment[KEY_VARIABLE] = render(secret)
        self._space = measure_space(folder)
        self._restarted = -math.inf
        self._server: NatsServer | None = None
        self._ports: Ports | None = None
        self._reloading = asyncio.Lock()
        self._ready, self._restart_wanted = asyncio.Event(), asyncio.Event()
        self._stamps = _stamp_files(folder, None)  # before the credentials are read
        self.conf = resolve(settings, folder, self._keys, self._space)
        """The configuration in force."""
        self._stamps = _stamp_files(folder, self.conf.tls) | self._stamps
        self._after_restart: BrokerSettings | None = None
        self._checked_partitions = 0  # the declared number that was compared with the stored one

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force."""
        return self.conf.settings

    @property
    def reserve(self) -> int:
        """The bytes of the store's disk that should stay free."""
        return compute_reserve(self.settings, self._space.total)

    @property
    def is_ready(self) -> bool:
        """Whether the broker serves clients, or waits only for the other servers of its cluster."""
        return self._ready.is_set() or bool(self._cluster_lacks)

    def leads(self, info: Mapping[str, Any]) -> bool:
        """Whether this broker leads the stream; a server without a cluster leads all streams."""
        cluster = info.get("cluster") or {}
        return not cluster.get("name") or cluster.get("leader") == self.settings.name

    def status(self) -> str:
        """Return the broker's state as one line for the service manager."""
        if self._cluster_lacks:
            return f"waiting for its cluster: {self._cluster_lacks}"
        if self.frozen:
            return f"FROZEN, nothing is stored: {self.frozen}"
        return "serving" if self.is_ready else "starting"

    def is_moving(self, most: float) -> bool:
        """Return true: `watch_health` restarts a nats-server that hangs."""
        return True

    def left(self) -> int:
        """Return 0: a broker waits for others."""
        return 0

    async def run(self, lock: int) -> None:
        """Run nats-server until cancelled, and start it again when a restart is wanted.

        The server inherits the descriptor `lock` of the store's lock.
        """
        while True:
            await self._run_once(lock)
            self._ready.clear()
            self._restart_wanted.clear()
            self._space = measure_space(self.folder)
            try:
                self.conf = self._resolve(self._keep_ports(self._after_restart or self.settings))
            except OperatorError as error:
                _log_failed_reload(error)
            self._after_restart = None

    async def _run_once(self, lock: int) -> None:
        memory = int(self.settings.memory)
        remove_half_made_streams(self.folder)
        stored = list_stored_streams(self.folder)
        path = write_conf(self.folder, self.conf.text)
        connections: list[Connection] = []
        try:
            async with (
                run_nats_server(self._binary, path, memory, lock, self._environment) as server,
                asyncio.TaskGroup() as group,
            ):
                self._server = server
                server.names |= self.conf.names
                tasks = [group.create_task(server.attend())]
                self._ports = await server.wait_for_ports()
                # requests for consumers have their own connection: the server may close it in a
                # flood of requests
                connections += [
                    Connection([self._url], name, access=self.conf.access)
                    for name in ("logbroker", "logbroker consumers")
                ]
                self.connection = connections[0]
                tasks += map(group.create_task, await self._set_up(stored, connections[1]))
                await self._restart_wanted.wait()
                for task in tasks:
                    task.cancel()
        finally:
            with suppress(OSError):  # on a full disk the next start removes it
                remove_state(self.folder)
            for connection in connections:
                await connection.close()

    @property
    def _url(self) -> str:
        conf, port = self.conf, self._ports.client if self._ports else 0
        return f"{'tls' if conf.tls else 'nats'}://{conf.settings.listen.reached_at(port)}"

    async def _set_up(
        self, stored: frozenset[str], requests: Connection
    ) -> list[Coroutine[Any, Any, None]]:
        """Provision the server, and return the tasks that run beside it; a failed one ends it."""
        infos = await self._provision(self.conf, stored)
        site, names = self.settings.site, self.conf.topology.names
        consumers, listens = ConsumerRequests(requests, site, names), asyncio.Event()
        handlers = {
            REPORT_SUBJECT: self._answer_report,
            CREDENTIALS_SUBJECT: self._answer_credentials,
        }
        return [
            listen(self.connection, handlers, listens),
            consumers.run(),
            self._watch_files(),
            self._announce(infos, (listens, consumers.listens)),
            *(make(self) for make in self._background),
        ]

    async def _provision(
        self, conf: ServerConf, stored: frozenset[str] = frozenset()
    ) -> list[Mapping[str, Any]]:
        def report(reason: str) -> None:
            if reason and not self._cluster_lacks:
                logger.info("waiting for its cluster: %s", reason)
            self._cluster_lacks = reason

        topology = self._declare(conf)
        if conf.settings.cluster:
            infos = await provision_cluster(self.connection, topology, report)
        else:
            infos = await provision_alone(self.connection, topology, stored)
        self._checked_partitions = conf.settings.partitions
        self._mirror = find_mirrored_site(infos[0]["config"]) if infos else None
        return infos

    def _declare(self, conf: ServerConf) -> Topology:
        # compared once: `logbroker partitions` may have changed the stored number since the start
        is_checked = conf.settings.partitions == self._checked_partitions
        return replace(conf.topology, partitions_given=False) if is_checked else conf.topology

    async def _announce(
        self, infos: Sequence[Mapping[str, Any]], listening: Sequence[asyncio.Event]
    ) -> None:
        for event in listening:
            await event.wait()  # a ready broker answers requests
        logger.info(
            "ready: %s, store %s, %s of at most %s, %s",
            self.connection.servers,
            self.folder,
            "stream LOGS" if len(infos) == 1 else f"{len(infos)} streams",
            format_size(sum(info["config"]["max_bytes"] for info in infos)),
            format_count(sum(info["state"]["messages"] for info in infos), "message"),
        )
        if self._mirror:
            logger.warning(
                "this site is a mirror of site %s and takes no lines: shippers must connect to "
                "that site, until this one is started with --mirror ''",
                self._mirror,
            )
        self._ready.set()
        failed = ""
        while True:  # a full disk still serves what is stored
            try:
                return self._write_state()
            except OperatorError as error:
                if str(error) != failed:
                    logger.error("%s", failed := str(error))  # noqa: TRY400 - no defect
            await asyncio.sleep(_RETRY_AFTER)

    async def _answer_report(self, message: Message) -> None:
        """Answer with a `NodeReport`, or with the names of credentials if these are asked for."""
        if message.data == NAMES_REQUEST:
            names = self._server.names if self._server else {}
            await self.connection.publish(message.reply, json.dumps(names).encode())
            return
        version = (await self.connection.client()).connected_server_version
        store, tls, remotes = self.conf.credentials, self.conf.tls, self.settings.site_remote
        links = await count_site_links(self.connection, self.settings.name) if remotes else 0
        report = NodeReport(
            name=self.settings.name,
            version=f"{version.major}.{version.minor}.{version.patch}",
            nats_server_pid=self._server.pid if self._server else None,
            credentials=len(store.credentials) if store.is_secured else None,
            certificates=read_expiries(tls.files if tls else ()),
            mirror=self._mirror,
            site_remotes=len(remotes),
            site_links=links,
            free=shutil.disk_usage(self.folder).free,
            reserve=self.reserve,
            frozen=self.frozen or None,
            encrypted=self.settings.encryption_key_file is not None,
            retention=self.retention,
            rounds_per_second=self.rounds_per_second,
        )
        await self.connection.publish(message.reply, report.model_dump_json().encode())

    async def _answer_credentials(self, message: Message) -> None:
        own = self.settings.name
        answer = await answer_credentials(self.folder, own, self.reload, message)
        await self.connection.publish(message.reply, answer)

    def restart(self, reason: str, pause: float) -> None:
        """Restart nats-server, unless that was done in the last `pause` seconds."""
        if time.monotonic() - self._restarted >= pause:
            self._restarted = time.monotonic()
            logger.warning("restarting nats-server: %s", reason)
            self._restart_wanted.set()

    async def change_settings(self, settings: BrokerSettings) -> None:
        """Put new settings in force, except those that only a start can change.

        Raises `OperatorError`; then the current settings stay in force.
        """
        at_once = {*type(settings).model_fields} - _AT_START
        settings, changes = merge_reloaded(self.settings, settings, at_once)
        await self.reload(settings)
        logger.info("settings reloaded; %s", changes)

    async def reload(self, settings: BrokerSettings | None = None) -> None:
        """Read credentials and certificates again, and put them and `settings` in force.

        Every change of a running server goes through here. Raises `OperatorError`.
        """
        await self._ready.wait()  # files that were read at the start may have changed since
        async with self._reloading:
            if self._restart_wanted.is_set():
                raise OperatorError("nats-server is being restarted; try again after that")
            try:
                await self._reload(settings or self.settings)
            finally:  # credentials may be in force although the cluster has not answered
                self._write_state()

    async def _reload(self, settings: BrokerSettings) -> None:
        stamps, before = _stamp_files(self.folder, self.conf.tls), self.settings
        # thousands of credentials take a second, which would block the loop
        conf = await asyncio.to_thread(self._resolve, settings)
        # other settings must not wait for the streams: a new route may bring back the cluster
        is_declared_anew = conf.topology != self.conf.topology
        if is_declared_anew:
            await self._check(conf)
        if (conf.http_path, conf.access) != (self.conf.http_path, self.conf.access):
            logger.info("restarting nats-server: this change needs a restart")
            self._after_restart, self._stamps = settings, stamps
            self._restart_wanted.set()
            return
        await self._put_in_force(conf)
        self._stamps = stamps
        try:
            async with asyncio.timeout(_CLUSTER_PATIENCE if settings.cluster else None):
                await self._provision(conf)
        except (TimeoutError, OperatorError) as error:
            if is_declared_anew:
                await self._put_in_force(await asyncio.to_thread(self._resolve, before))
            if isinstance(error, OperatorError):
                raise
            raise OperatorError(f"the cluster does not answer: {self._cluster_lacks}") from None

    async def _check(self, conf: ServerConf) -> None:
        """Raise `OperatorError` for settings that contradict the streams; change nothing."""
        read = partial(read_actual, desired=conf.topology)
        try:
            actual = await retry_until_answered(self.connection, read, _CLUSTER_PATIENCE)
        except (ConnectionLost, Rejected) as error:
            raise OperatorError(f"cannot read the streams: {error}; reload again") from None
        with suppress(BeingRestored):
            plan(self._declare(conf), actual)

    async def _put_in_force(self, conf: ServerConf) -> None:
        if self._server:
            write_conf(self.folder, conf.text)
            self._server.names |= conf.names  # before a new credential can connect
            await self._server.reload()
        if conf.credentials.revision != self.conf.credentials.revision:
            taken = format_count(len(conf.credentials.credentials), "credential")
            logger.info("took over %s", taken)
        self.conf = conf

    def _resolve(self, settings: BrokerSettings) -> ServerConf:
        # with the space at the last start: the streams' limit must not depend on their content
        conf = resolve(settings, self.folder, self._keys, self._space)
        if self.conf.credentials.is_secured and not conf.credentials.is_secured:
            raise ConfigurationError(
                f"{self.folder / CREDENTIALS} is gone or empty; restore a copy of it, or stop the "
                "broker to open it to everybody"
            )
        return conf

    def _keep_ports(self, settings: BrokerSettings) -> BrokerSettings:
        """Return the settings with the ports that the system chose at the first start."""
        if (ports := self._ports) is None:
            return settings
        listen, http = settings.listen, settings.http
        addresses = {
            "listen": Address(listen.host, listen.port or ports.client),
            "http": Address(http.host, http.port or ports.http or 0) if http else None,
        }
        return settings.model_copy(update=addresses)

    def _write_state(self) -> None:
        if self._ports is None or self._server is None or self._restart_wanted.is_set():
            return
        conf, listen = self.conf, self.conf.settings.http
        http = listen.reached_at(self._ports.http) if listen and self._ports.http else None
        write_state(
            self.folder,
            server=self._url,
            http=f"http://{http}{conf.http_path}" if http else None,
            store_dir=str(self.folder),
            pid=os.getpid(),
            nats_server_pid=self._server.pid,
            revision=self.conf.credentials.revision,
        )

    async def _watch_files(self) -> None:
        """Reload when a file of credentials or certificates changes, or the last reload failed."""
        await self._ready.wait()
        failed = ""
        while True:
            if failed or _stamp_files(self.folder, self.conf.tls) != self._stamps:
                before, failed = failed, ""
                try:
                    await self.reload()
                except OperatorError as error:
                    if (failed := str(error)) != before:
                        _log_failed_reload(error)
            await asyncio.sleep(_RETRY_AFTER if failed else _CHECK_FILES_EVERY)


Background = Callable[[ServerContext], Coroutine[Any, Any, None]]
"""Returns a task that runs beside a server."""


def _log_failed_reload(error: OperatorError) -> None:
    logger.error("reload failed, keeping current settings: %s", error)


def _stamp_files(folder: Path, tls: TlsConf | None) -> dict[Path, object]:
    """Return inode, size and time of change of each watched file that exists."""
    found = dict[Path, object]()
    for file in (folder / CREDENTIALS, *(tls.files if tls else ())):
        with suppress(OSError):
            status = file.stat()
            found[file] = status.st_ino, status.st_size, status.st_mtime_ns
    return found
