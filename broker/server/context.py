"""The server context: what `logbroker run` holds of its nats-server, from the resolved configuration to the reload.

resolve ─▶ conf ─▶ check ─▶ start ─▶ ports ─▶ provision ─▶ ready … background tasks, reloads … ─▶ restart, or the end
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from broker.app.address import Address
from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import open_folder, replacing, reporting, write_atomic
from broker.app.units import format_size
from broker.auth.store_file import CREDENTIALS, load_credentials
from broker.client.connection import Connection
from broker.server.conf import ServerConf, render
from broker.server.health import HealthWatch, Restarts
from broker.server.process import Binary, NatsServer, Ports, check, started
from broker.server.provisioning import Provisioned, provision, refuse_lost_streams
from broker.server.report import Reporter
from broker.server.requests import ConsumerRequests, refuse_pushes
from broker.server.resolve import Resolved, ServerAccess, resolve, space_kept_free
from broker.server.state_file import Credentials, State
from broker.server.store import encryption_of, measure, streams_in
from broker.server.tls import renew_certificates
from broker.settings import BrokerSettings

__all__ = ["Background", "ServerContext"]

_CONF = "nats-server.conf"
_CONF_MODE = 0o600  # it holds secrets, such as the one that a cluster shares
_CLUSTER_PATIENCE = 10.0  # seconds for a cluster that has a leader to be as it is declared
_LOOK_EVERY = 0.5  # seconds between two looks at the files that are followed
_RENEW_EVERY = timedelta(days=1)
_RETRY_AFTER = timedelta(seconds=5)  # where a credential that has ended could not be taken away
logger = logging.getLogger(__name__)


class ServerContext:
    """The one nats-server of a broker, and all that is known of it."""

    def __init__(
        self,
        settings: BrokerSettings,
        folder: Path,
        binary: Binary,
        now: Callable[[], datetime],
        background: Sequence["Background"] = (),
    ) -> None:
        """Resolve the configuration; `folder` is absolute and locked. Raises `OperatorError`.

        `background` makes what runs beside the server once that is ready, for as long as the server lives.
        """
        self.folder = folder
        self.report_parts: dict[str, Callable[[], Mapping[str, Any]]] = {}
        """What background tasks add to the report, by its key."""
        self.binary = binary
        self.restarts = 0
        self.waits_for = ""
        """What of its cluster the server waits for."""
        self.mirror: str | None = None
        """The site that this one is a mirror of."""
        self._now = now
        self._background = background
        self._access = ServerAccess(folder)
        self._encryption = encryption_of(settings, folder)
        self._health: HealthWatch | None = None
        self._health_restarts = Restarts()
        self._server: NatsServer | None = None
        self._ports: Ports | None = None
        self._ports_before: Ports | None = None
        self._connection: Connection | None = None
        self._reloading = asyncio.Lock()
        self._ready = asyncio.Event()
        self._next: Resolved | None = None
        self._restart_wanted = asyncio.Event()
        self._stamps = _stamps([folder / CREDENTIALS])
        self._space = measure(folder)
        self._resolved = self._resolve(settings)

    @property
    def settings(self) -> BrokerSettings:
        """The settings that count now."""
        return self._resolved.settings

    @property
    def resolved(self) -> Resolved:
        """The configuration that counts now."""
        return self._resolved

    @property
    def connection(self) -> Connection:
        """Logbroker's own connection to the server."""
        if self._connection is None:
            raise OperatorError("nats-server is still starting; try again when it is ready")
        return self._connection

    @property
    def server(self) -> NatsServer:
        """The running nats-server."""
        if self._server is None:
            raise OperatorError("nats-server is still starting; try again when it is ready")
        return self._server

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return self._ready.is_set()

    @property
    def frozen(self) -> str:
        """The write that failed, for which nothing more is stored; empty when all is well."""
        return self._health.frozen if self._health else ""

    @property
    def answered(self) -> float | None:
        """When the server last answered, by the monotonic clock; None while it starts."""
        return self._health.answered if self._health and self.is_ready else None

    async def run(self, lock: int) -> None:
        """Run nats-server, and restart it where that is wanted, until cancelled; it inherits the store's `lock`.

        Raises `OperatorError` when the server cannot start, or ends by itself.
        """
        while True:
            await self._run_once(lock)
            self.restarts += 1
            self._ready.clear()
            self._restart_wanted.clear()
            self._ports_before = self._ports
            self._space = measure(self.folder)
            self._resolved = self._resolve((self._next or self._resolved).settings)

    async def _run_once(self, lock: int) -> None:
        path, memory = self.folder / _CONF, int(self.settings.memory)
        environment = self._encryption.environment()
        stored = streams_in(self.folder)
        write_atomic(path, render(self._resolved.conf), _CONF_MODE)
        await check(self.binary.path, path, environment)
        requests: Connection | None = None
        try:
            async with (
                started(self.binary.path, path, memory, lock, environment) as server,
                asyncio.TaskGroup() as group,
            ):
                self._server = server
                tasks = [group.create_task(server.attend())]
                url = await self._url_of(server)
                self._connection = Connection([url], "logbroker", access=self._resolved.own)
                # on a connection of their own, which may be closed under a flood of requests
                requests = Connection([url], "logbroker consumers", access=self._resolved.own)
                tasks += [group.create_task(one) for one in await self._begin(stored, requests)]
                await self._restart_wanted.wait()
                for task in tasks:
                    task.cancel()
        finally:
            with suppress(OSError):  # where the disk refuses, the next start does it
                State.remove(self.folder)
            for connection in (self._connection, requests):
                if connection is not None:
                    await connection.close()

    async def _url_of(self, server: NatsServer) -> str:
        self._ports = await server.ports()
        if server.cannot_decrypt:
            raise ConfigurationError(
                f"the store {self.folder} is encrypted with another key; give its own by --encryption-key-file "
                "(nothing was changed)"
            )
        return _url(self._resolved.conf, self._ports)

    async def _begin(
        self, stored: frozenset[str], requests: Connection
    ) -> list[Coroutine[Any, Any, None]]:
        """Provision the server, and return what is to run beside it; what fails there ends the broker."""
        if (
            self._resolved.conf.cluster is None
        ):  # else the cluster's leader says what this server has
            await refuse_lost_streams(self.connection, stored)
        provisioned = await provision(self.connection, self._resolved, self._wait)
        self.mirror = provisioned.mirror
        name = self._resolved.conf.name
        self._health = HealthWatch(self.connection, name, self.folder, self._kept_free)
        reporter, consumers = Reporter(self, self._now()), ConsumerRequests(requests)
        listening = (reporter.listening.listens, consumers.listens)
        return [
            self._health.run(self._health_restarts, self.restart),
            reporter.listening.run(),
            consumers.run(),
            refuse_pushes(self.connection, lambda: self._resolved.topology.names),
            self._follow_files(),
            self._announce(provisioned, listening),
            *(make(self) for make in self._background),
        ]

    async def _announce(self, provisioned: Provisioned, listening: Sequence[asyncio.Event]) -> None:
        for event in listening:
            await event.wait()  # whoever reads that the server is ready may ask for its report
        self._write_state()
        self._ready.set()
        logger.info(
            "ready: %s, store %s, %s of at most %s, %d messages",
            self.connection.servers,
            self.folder,
            provisioned.streams,
            format_size(provisioned.max_bytes),
            provisioned.messages,
        )
        if provisioned.mirror:
            logger.warning(
                "this site is a mirror of site %s and takes no lines: shippers go there, until `logbroker promote` here",
                provisioned.mirror,
            )

    def _wait(self, reason: str) -> None:
        """Take note of what the cluster is waited for, and log it; the other servers may start later."""
        if reason and not self.waits_for:
            logger.info("waiting for its cluster: %s", reason)
        self.waits_for = reason

    def _kept_free(self) -> int:
        return space_kept_free(self.settings, self._space.total)

    def restart(self) -> None:
        """End nats-server in order and start it again; not where the files say now what could not start."""
        try:
            self._next = self._resolve(self.settings)
        except OperatorError as error:
            logger.error("nats-server is not restarted: %s", error)  # noqa: TRY400 - a person must mend it
        else:
            self._restart_wanted.set()

    async def reload(self, settings: BrokerSettings | None = None) -> None:
        """Take over settings, credentials and certificates as they are now: the only way by which a running server changes.

        Raises `OperatorError` and keeps the current configuration where that will not do.
        """
        await self._ready.wait()  # what was read at the start may be old by then
        async with self._reloading:
            if self._restart_wanted.is_set():
                raise OperatorError("nats-server is being restarted; try again after that")
            try:
                await self._reload(settings or self.settings)
            except OperatorError as error:
                self._write_state(error)
                raise
            self._write_state()

    async def _reload(self, settings: BrokerSettings) -> None:
        self._stamps = _stamps(self._stamps)
        # thousands of credentials take a second, in which nobody else is to wait
        resolved = await asyncio.to_thread(self._resolve, settings)
        await self._replace_conf(await asyncio.to_thread(render, resolved.conf))
        if resolved.takes_restart_after(self._resolved):
            logger.info("restarting nats-server, since this cannot change while it runs")
            self._next = resolved
            self._restart_wanted.set()
            return
        try:
            await self.server.reload()
        except OperatorError:
            write_atomic(self.folder / _CONF, render(self._resolved.conf), _CONF_MODE)
            raise
        if resolved.admission.revision != self._resolved.admission.revision:
            logger.info("took over %d credentials", resolved.admission.credentials)
        self._resolved = resolved
        patience = _CLUSTER_PATIENCE if resolved.conf.cluster else None
        try:
            async with asyncio.timeout(patience):
                await provision(self.connection, resolved, self._wait)
        except TimeoutError:
            raise OperatorError(f"the cluster does not answer: {self.waits_for}") from None

    async def _replace_conf(self, text: str) -> None:
        """Have nats-server check a configuration before it takes its place; raises `OperatorError`."""
        with (
            reporting(self.folder / _CONF),
            open_folder(self.folder) as folder,
            replacing(folder, _CONF, _CONF_MODE) as half,
        ):
            half.file.write(text.encode())
            half.file.flush()
            await check(self.binary.path, half.path, self._encryption.environment())

    def _resolve(self, settings: BrokerSettings) -> Resolved:
        # with the space that there was at the start: what the server has stored since then is its own affair
        resolved = resolve(settings, self._access, self._space, self._now())
        conf = replace(resolved.conf, cipher=self._encryption.cipher)
        self._stamps = _stamps([*resolved.security.files]) | self._stamps
        return replace(resolved, conf=_at_ports(conf, self._ports_before))

    def _write_state(self, refusal: OperatorError | None = None) -> None:
        if self._ports is None or self._restart_wanted.is_set():
            return
        conf, admission = self._resolved.conf, self._resolved.admission
        http = conf.http.reached_at(self._ports.http) if conf.http and self._ports.http else None
        credentials = Credentials(admission.revision, admission.secured)
        if refusal is not None:
            revision = _revision(self.folder)
            credentials = replace(credentials, refused=revision, reason=str(refusal))
        State(
            server=_url(conf, self._ports),
            http=f"http://{http}{conf.http_path}" if http else None,
            store_dir=str(self.folder),
            pid=os.getpid(),
            nats_server_pid=self.server.pid,
            credentials=credentials,
        ).write(self.folder)

    async def _follow_files(self) -> None:
        """Reload where credentials or certificates have changed, or a credential has ended; renew certificates in time."""
        await self._ready.wait()
        renew = retry = self._now()
        while True:
            now, until = self._now(), self._resolved.admission.until
            if now >= renew:
                renew = now + _RENEW_EVERY
                renew_certificates(self.folder, self._resolved.security.files, now)
            has_ended = until is not None and now >= max(until, retry)
            if has_ended or _stamps(self._stamps) != self._stamps:
                retry = now + _RETRY_AFTER
                await self._reload_logged()
            await asyncio.sleep(_LOOK_EVERY)

    async def _reload_logged(self) -> None:
        try:
            await self.reload()
        except OperatorError as error:
            logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it


Background = Callable[[ServerContext], Coroutine[Any, Any, None]]
"""Makes what runs beside a server."""


def _url(conf: ServerConf, ports: Ports) -> str:
    return f"{'tls' if conf.tls else 'nats'}://{conf.listen.reached_at(ports.client)}"


def _at_ports(conf: ServerConf, ports: Ports | None) -> ServerConf:
    """Return the configuration of a restart: free ports that the system chose before stay the same."""
    if ports is None:
        return conf
    listen, http = conf.listen, conf.http
    if not listen.port:
        listen = Address(listen.host, ports.client)
    if http is not None and not http.port and ports.http:
        http = Address(http.host, ports.http)
    return replace(conf, listen=listen, http=http)


Stamp = tuple[int, int, int]


def _stamps(files: Iterable[Path]) -> dict[Path, Stamp | None]:
    """Return what distinguishes one content of each file from another; None for a file that is not there."""
    return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _revision(folder: Path) -> int | None:
    try:
        return load_credentials(folder).revision
    except OperatorError:
        return None
