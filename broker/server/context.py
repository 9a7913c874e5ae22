"""`logbroker run`: a locked store and its nats-server, from the start to a signal.

resolve ─▶ conf ─▶ start ─▶ ports ─▶ provision ─▶ ready … background tasks, reloads … ─▶ restart, or the end
"""

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broker.app.exits import ConfigurationError, Exit, OperatorError
from broker.app.files import write_atomic
from broker.app.program import log_to_stderr
from broker.app.service import Notifier, Supervisor, differences
from broker.app.shutdown import Shutdown
from broker.app.units import format_size
from broker.auth.certificates import ends_of
from broker.auth.store_file import CREDENTIALS, load_credentials
from broker.client.connection import Connection, Message
from broker.provision.cluster import provision
from broker.report import SUBJECT
from broker.server.conf import render
from broker.server.health import HealthWatch
from broker.server.process import NatsServer, Ports, find, started
from broker.server.requests import ConsumerRequests, Listening, refuse_pushes
from broker.server.resolve import Resolved, ServerAccess, own_name, resolve, space_kept_free
from broker.server.state_file import remove_state, write_state
from broker.server.store import (
    check_membership,
    clear_half_made,
    encryption_of,
    locked_store,
    measure,
    remember_membership,
    store_error,
    streams_in,
)
from broker.server.tls import renew_certificates
from broker.settings import BrokerSettings
from broker.topology import mirrored_site

__all__ = ["Background", "ServerContext", "log_as_set", "serve"]

_CONF = "nats-server.conf"
_CONF_MODE = 0o600  # it holds secrets, such as the one that a cluster shares
_CLUSTER_PATIENCE = 10.0  # seconds for a cluster that has a leader to be as it is declared
_LOOK_EVERY = 0.5  # seconds between two looks at the files that are followed
_RENEW_EVERY = timedelta(days=1)
_RETRY_AFTER = timedelta(seconds=5)  # where a credential that has ended could not be taken away
_AT_START = frozenset(
    {
        *("store_dir", "listen", "http", "metrics", "server_name", "nats_server", "memory"),
        *("cluster", "cluster_listen", "encryption_key_file", "encryption_cipher"),
    }
)
logger = logging.getLogger(__name__)


class ServerContext:
    """The one nats-server of a broker, all that is known of it, and how it is, for the service manager."""

    def __init__(
        self, settings: BrokerSettings, folder: Path, background: Sequence["Background"] = ()
    ) -> None:
        """Resolve the configuration; `folder` is absolute and locked. Raises `OperatorError`.

        `background` makes what runs beside the server once that is ready, for as long as the server lives.
        """
        self.folder = folder
        self.report_parts: dict[str, Callable[[], Mapping[str, Any]]] = {}
        """What background tasks add to the report, by its key."""
        self._background = background
        self._waits_for = ""  # what of its cluster the server waits for
        self._mirror: str | None = None  # the site that this one is a mirror of
        self._binary = find(settings.nats_server)
        self._access = ServerAccess(folder)
        self._encryption = encryption_of(settings, folder)
        self._space = measure(folder)
        self._health = HealthWatch(own_name(settings), folder, self._kept_free)
        self._server: NatsServer | None = None
        self._ports: Ports | None = None
        self._ports_before: Ports | None = None
        self._connection: Connection | None = None
        self._reloading = asyncio.Lock()
        self._ready, self._restart_wanted = asyncio.Event(), asyncio.Event()
        self._next: Resolved | None = None
        self._stamps = _stamps([folder / CREDENTIALS])
        self.resolved = self._resolve(settings)
        """The configuration that counts now."""

    @property
    def settings(self) -> BrokerSettings:
        """The settings that count now."""
        return self.resolved.settings

    @property
    def connection(self) -> Connection:
        """Logbroker's own connection to the server."""
        if self._connection is None:
            raise OperatorError("nats-server is still starting; try again when it is ready")
        return self._connection

    @property
    def is_ready(self) -> bool:
        """Whether clients are served, or the others of its cluster are waited for."""
        return self._ready.is_set() or bool(self._waits_for)

    def status(self) -> str:
        """Return one line on how the broker is."""
        if self._waits_for:
            return f"waiting for its cluster: {self._waits_for}"
        if self._health.frozen:
            return f"FROZEN, nothing is stored: {self._health.frozen}"
        return "serving" if self.is_ready else "starting"

    def is_moving(self, most: float) -> bool:
        """Whether nats-server has answered within `most` seconds; while it recovers its store it may take its time."""
        return not self._ready.is_set() or time.monotonic() - self._health.answered < most

    async def run(self, lock: int) -> None:
        """Run nats-server, and restart it where that is wanted, until cancelled; it inherits the store's `lock`.

        Raises `OperatorError` when the server cannot start, or ends by itself.
        """
        while True:
            await self._run_once(lock)
            self._ready.clear()
            self._restart_wanted.clear()
            self._ports_before = self._ports
            self._space = measure(self.folder)
            self.resolved = self._resolve((self._next or self.resolved).settings)

    async def _run_once(self, lock: int) -> None:
        path, memory = self.folder / _CONF, int(self.settings.memory)
        clear_half_made(self.folder)
        environment, stored = self._encryption.environment(), streams_in(self.folder)
        write_atomic(path, render(self.resolved.conf), _CONF_MODE)
        connections: list[Connection] = []
        try:
            async with (
                started(self._binary, path, memory, lock, environment) as self._server,
                asyncio.TaskGroup() as group,
            ):
                tasks = [group.create_task(self._server.attend())]
                self._ports = await self._server.ports()
                if self._server.cannot_decrypt:
                    raise ConfigurationError(
                        f"the store {self.folder} is encrypted with another key; give its own by --encryption-key-file "
                        "(nothing was changed)"
                    )
                # consumers are made on a connection of their own, which may be closed under a flood of requests
                connections += [
                    Connection([self._url()], name, access=self.resolved.own)
                    for name in ("logbroker", "logbroker consumers")
                ]
                self._connection = connections[0]
                tasks += map(group.create_task, await self._begin(stored, connections[1]))
                await self._restart_wanted.wait()
                for task in tasks:
                    task.cancel()
        finally:
            with suppress(OSError):  # where the disk refuses, the next start does it
                remove_state(self.folder)
            for connection in connections:
                await connection.close()

    def _url(self) -> str:
        conf, port = self.resolved.conf, self._ports.client if self._ports else 0
        return f"{'tls' if conf.tls else 'nats'}://{conf.listen.reached_at(port)}"

    async def _begin(
        self, stored: frozenset[str], requests: Connection
    ) -> list[Coroutine[Any, Any, None]]:
        """Provision the server, and return what is to run beside it; what fails there ends the broker."""
        infos = await self._provision(self.resolved, stored)
        reports = Listening(self.connection, SUBJECT, self._answer)
        consumers = ConsumerRequests(requests)
        return [
            self._health.run(self.connection, self.restart),
            reports.run(),
            consumers.run(),
            refuse_pushes(self.connection, lambda: self.resolved.topology.names),
            self._follow_files(),
            self._announce(infos, (reports.listens, consumers.listens)),
            *(make(self) for make in self._background),
        ]

    async def _provision(
        self, resolved: Resolved, stored: frozenset[str] = frozenset()
    ) -> list[dict[str, Any]]:
        own = resolved.conf.name if resolved.conf.cluster else None
        infos = await provision(self.connection, resolved.topology, own, stored, self._wait)
        self._mirror = mirrored_site(infos[0]["config"])
        return infos

    def _wait(self, reason: str) -> None:
        """Take note of what the cluster is waited for, and log it; the other servers may start later."""
        if reason and not self._waits_for:
            logger.info("waiting for its cluster: %s", reason)
        self._waits_for = reason

    async def _announce(
        self, infos: Sequence[Mapping[str, Any]], listening: Sequence[asyncio.Event]
    ) -> None:
        for event in listening:
            await event.wait()  # whoever reads that the server is ready may ask for its report
        self._write_state()
        self._ready.set()
        logger.info(
            "ready: %s, store %s, %s of at most %s, %d messages",
            self.connection.servers,
            self.folder,
            "stream LOGS" if len(infos) == 1 else f"{len(infos)} streams",
            format_size(sum(info["config"]["max_bytes"] for info in infos)),
            sum(info["state"]["messages"] for info in infos),
        )
        if self._mirror:
            logger.warning(
                "this site is a mirror of site %s and takes no lines: shippers go there, until `logbroker promote` here",
                self._mirror,
            )

    async def _answer(self, message: Message) -> None:
        """Answer with the report: see `NodeReport`."""
        if not message.reply:
            return
        version = (await self.connection.client()).connected_server_version
        admission = self.resolved.admission
        report = {
            "name": self.resolved.conf.name,
            "version": f"{version.major}.{version.minor}.{version.patch}",
            "nats_server_pid": self._server.pid if self._server else None,
            "credentials": admission.credentials if admission.secured else None,
            "certificates": [
                {"path": end.path, "not_after": end.not_after.isoformat()}
                for end in ends_of(self.resolved.security.files)
            ],
            "mirror": self._mirror,
            "free": shutil.disk_usage(self.folder).free,
            "reserve": self._kept_free(),
            "frozen": self._health.frozen or None,
            "encrypted": self._encryption.cipher is not None,
            **{key: dict(part()) for key, part in self.report_parts.items()},
        }
        await self.connection.publish(message.reply, json.dumps(report).encode())

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

    async def change(self, settings: BrokerSettings) -> None:
        """Make new settings count, as far as a running broker can; raises `OperatorError` and keeps the current ones."""
        changes = differences(self.settings, settings, {*type(settings).model_fields} - _AT_START)
        await self.reload(changes.settings)
        log_as_set(changes.settings)
        logger.info("settings reloaded; %s", changes)

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
        text = await asyncio.to_thread(render, resolved.conf)
        if resolved.takes_restart_after(self.resolved):
            logger.info("restarting nats-server, since this cannot change while it runs")
            self._next = resolved
            self._restart_wanted.set()
            return
        try:
            if self._server:
                write_atomic(self.folder / _CONF, text, _CONF_MODE)
                await self._server.reload()
        except OperatorError:
            write_atomic(self.folder / _CONF, render(self.resolved.conf), _CONF_MODE)
            raise
        if resolved.admission.revision != self.resolved.admission.revision:
            logger.info("took over %d credentials", resolved.admission.credentials)
        self.resolved = resolved
        try:
            async with asyncio.timeout(_CLUSTER_PATIENCE if resolved.conf.cluster else None):
                await self._provision(resolved)
        except TimeoutError:
            raise OperatorError(f"the cluster does not answer: {self._waits_for}") from None

    def _resolve(self, settings: BrokerSettings) -> Resolved:
        # with the space that there was at the start: what the server has stored since then is its own affair
        resolved = resolve(settings, self._access, self._space, _now())
        self._stamps = _stamps([*resolved.security.files]) | self._stamps
        conf = replace(resolved.conf, cipher=self._encryption.cipher)
        if self._ports_before:  # after a restart, free ports that the system chose stay the same
            conf = conf.at(*self._ports_before)
        return replace(resolved, conf=conf)

    def _write_state(self, refusal: OperatorError | None = None) -> None:
        if self._ports is None or self._server is None or self._restart_wanted.is_set():
            return
        conf, admission = self.resolved.conf, self.resolved.admission
        http = conf.http.reached_at(self._ports.http) if conf.http and self._ports.http else None
        credentials = {"revision": admission.revision, "secured": admission.secured}
        if refusal is not None:
            with suppress(OperatorError):
                credentials["refused"] = load_credentials(self.folder).revision
        write_state(
            self.folder,
            server=self._url(),
            http=f"http://{http}{conf.http_path}" if http else None,
            store_dir=str(self.folder),
            pid=os.getpid(),
            nats_server_pid=self._server.pid,
            credentials={**credentials, "reason": str(refusal or "")},
        )

    async def _follow_files(self) -> None:
        """Reload where credentials or certificates have changed, or a credential has ended; renew certificates in time."""
        await self._ready.wait()
        renew = retry = _now()
        while True:
            now, until = _now(), self.resolved.admission.until
            if now >= renew:
                renew = now + _RENEW_EVERY
                renew_certificates(self.folder, self.resolved.security.files, now)
            has_ended = until is not None and now >= max(until, retry)
            if has_ended or _stamps(self._stamps) != self._stamps:
                retry = now + _RETRY_AFTER
                try:
                    await self.reload()
                except OperatorError as error:
                    logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it
            await asyncio.sleep(_LOOK_EVERY)


Background = Callable[[ServerContext], Coroutine[Any, Any, None]]
"""Makes what runs beside a server."""


async def serve(
    settings: BrokerSettings,
    folder: Path,
    notifier: Notifier,
    reread: Callable[[], BrokerSettings],
    background: Sequence[Background] = (),
) -> None:
    """Run the broker on `folder`, absolute, until SIGTERM or SIGINT.

    Raises `OperatorError` when it cannot start or ends by itself. `background` makes what runs beside nats-server.
    """
    ending, name = Shutdown(Exit.DONE), own_name(settings)
    try:
        with locked_store(folder) as lock:
            remove_state(folder)
            check_membership(folder, settings.cluster, name)
            context = ServerContext(settings, folder, background)
            remember_membership(folder, settings.cluster, name)
            supervisor = Supervisor(context, notifier, reread, context.change)

            def end() -> float:
                logger.info("stopping")
                supervisor.stopping()
                return 0.0

            ending.listen(end)
            supervisor.hear_hang_ups()
            try:
                async with ending.limit:
                    await supervisor.attend(context.run(lock))
            finally:
                supervisor.hear_no_hang_ups()
    except TimeoutError:
        pass  # ended as asked
    except OSError as error:
        raise store_error(folder, error) from None


def log_as_set(settings: BrokerSettings) -> None:
    """Send our log and nats-server's to stderr: of the latter what is wrong, unless all is wanted."""
    log_to_stderr(settings)
    level = logging.DEBUG if settings.log_level == "debug" else logging.WARNING
    logging.getLogger("nats-server").setLevel(level)


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)


def _stamps(files: Iterable[Path]) -> dict[Path, object]:
    """Return what distinguishes one content of each file from another; None for a file that is not there."""
    found: dict[Path, object] = {}
    for file in files:
        found[file] = None
        with suppress(OSError):
            status = file.stat()
            found[file] = status.st_ino, status.st_size, status.st_mtime_ns
    return found
