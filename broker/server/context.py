"""`logbroker run`: a locked store and its nats-server, from the start to a signal.

resolve ─▶ conf ─▶ start ─▶ ports ─▶ provision ─▶ ready … background tasks, reloads … ─▶ restart, or the end
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
from pathlib import Path
from typing import Any

from broker.auth.certificates import read_expiries
from broker.auth.files import CREDENTIALS
from broker.provision.apply import provision
from broker.report import (
    CREDENTIALS_SUBJECT,
    NAMES_REQUEST,
    REPORT_SUBJECT,
    NodeReport,
    SpaceReport,
)
from broker.server.process import NatsServer, Ports, find_nats_server, run_nats_server
from broker.server.requests import ConsumerRequests, answer_credentials, listen
from broker.server.resolve import (
    KEY_VARIABLE,
    ServerConf,
    ServerKeys,
    TlsConf,
    compute_reserve,
    read_secret,
    render,
    resolve,
)
from broker.server.store import (
    list_stored_streams,
    measure_space,
    remove_half_made_streams,
    remove_state,
    write_state,
)
from broker.settings import BrokerSettings
from broker.topology import find_mirrored_site
from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import write_atomic
from nats_logship.app.service import merge_reloaded
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message

_CONF = "nats-server.conf"
_CONF_MODE = 0o600  # it holds secrets, such as the one that a cluster shares
_CLUSTER_PATIENCE = 10.0  # seconds for a cluster that has a leader to be as it is declared
_LEAF_NODES = "$SYS.REQ.SERVER.PING.LEAFZ"
_PATIENCE = 1.0  # seconds for what the server says of its lines to other sites
_LOOK_EVERY = 0.5  # seconds between two looks at the files that are followed
_RETRY_AFTER = 5.0  # seconds, where a change could not be taken over
_AT_START = {
    *("store_dir", "listen", "http", "metrics", "server_name", "memory"),
    *("cluster", "cluster_listen", "encryption_key_file"),
}
logger = logging.getLogger(__name__)


class ServerContext:
    """The one nats-server of a broker, all that is known of it, and how it is, for the service manager."""

    connection: Connection
    """Logbroker's own connection to the server; there is one while what runs beside the server does."""

    def __init__(
        self, settings: BrokerSettings, folder: Path, background: Sequence["Background"] = ()
    ) -> None:
        """Resolve the configuration; `folder` is absolute and locked, `background` makes what runs beside a ready server. Raises `OperatorError`."""
        self.folder = folder
        self.retention: dict[str, SpaceReport] = {}
        """What retention did for each stream, for the report."""
        self.frozen = ""
        """The write that failed, for which nats-server stores nothing more."""
        self._background = background
        self._waits_for = ""  # what of its cluster the server waits for
        self._mirror: str | None = None  # the site that this one is a mirror of
        self._binary = find_nats_server()
        self._keys = ServerKeys()
        key_file = settings.encryption_key_file
        # nats-server reads a variable as a piece of configuration
        self._environment = (
            {KEY_VARIABLE: render(read_secret(key_file, "--encryption-key-file"))}
            if key_file
            else {}
        )
        self._space = measure_space(folder)
        self._restarted = -math.inf
        self._server: NatsServer | None = None
        self._ports: Ports | None = None
        self._reloading = asyncio.Lock()
        self._ready, self._restart_wanted = asyncio.Event(), asyncio.Event()
        self._stamps = _stamped(folder, None)  # before the credentials are read
        self.conf = resolve(settings, folder, self._keys, self._space)
        """The configuration that counts now."""
        self._stamps = _stamped(folder, self.conf.tls) | self._stamps
        self._wanted: BrokerSettings | None = None  # what counts after a restart

    @property
    def settings(self) -> BrokerSettings:
        """The settings that count now."""
        return self.conf.settings

    @property
    def is_ready(self) -> bool:
        """Whether clients are served, or the others of its cluster are waited for."""
        return self._ready.is_set() or bool(self._waits_for)

    def status(self) -> str:
        """Return one line on how the broker is."""
        if self._waits_for:
            return f"waiting for its cluster: {self._waits_for}"
        if self.frozen:
            return f"FROZEN, nothing is stored: {self.frozen}"
        return "serving" if self.is_ready else "starting"

    def is_moving(self, most: float) -> bool:
        """Return true: a nats-server that hangs is restarted by `watch_health`."""
        return True

    async def run(self, lock: int) -> None:
        """Run nats-server, and restart it where that is wanted, until cancelled; it inherits the store's `lock`."""
        while True:
            await self._run_once(lock)
            self._ready.clear()
            self._restart_wanted.clear()
            self._space = measure_space(self.folder)
            try:
                self.conf = self._resolve(self._with_ports(self._wanted or self.settings))
            except OperatorError as error:
                logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it
            self._wanted = None

    async def _run_once(self, lock: int) -> None:
        path, memory = self.folder / _CONF, int(self.settings.memory)
        remove_half_made_streams(self.folder)
        stored = list_stored_streams(self.folder)
        write_atomic(path, self.conf.text, _CONF_MODE)
        connections: list[Connection] = []
        try:
            async with (
                run_nats_server(
                    self._binary, path, memory, lock, self._environment
                ) as self._server,
                asyncio.TaskGroup() as group,
            ):
                self._server.names |= self.conf.names
                tasks = [group.create_task(self._server.attend())]
                self._ports = await self._server.ports()
                # consumers are made on a connection of their own, which may be closed under a flood of requests
                connections += [
                    Connection([self._url()], name, access=self.conf.own)
                    for name in ("logbroker", "logbroker consumers")
                ]
                self.connection = connections[0]
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
        conf, port = self.conf, self._ports.client if self._ports else 0
        return f"{'tls' if conf.tls else 'nats'}://{conf.settings.listen.reached_at(port)}"

    async def _begin(
        self, stored: frozenset[str], requests: Connection
    ) -> list[Coroutine[Any, Any, None]]:
        """Provision the server, and return what is to run beside it; what fails there ends the broker."""
        infos = await self._provision(self.conf, stored)
        site, lines = self.settings.site, self.conf.topology.names
        consumers, listens = ConsumerRequests(requests, site, lines), asyncio.Event()
        handlers = {REPORT_SUBJECT: self._answer, CREDENTIALS_SUBJECT: self._answer_credentials}
        return [
            listen(self.connection, handlers, listens),
            consumers.run(),
            self._follow_files(),
            self._announce(infos, (listens, consumers.listens)),
            *(make(self) for make in self._background),
        ]

    async def _provision(
        self, conf: ServerConf, stored: frozenset[str] = frozenset()
    ) -> list[dict[str, Any]]:
        def wait(reason: str) -> None:
            if reason and not self._waits_for:  # the other servers may start later
                logger.info("waiting for its cluster: %s", reason)
            self._waits_for = reason

        in_cluster = bool(conf.settings.cluster)
        infos = await provision(self.connection, conf.topology, stored, wait, in_cluster=in_cluster)
        self._mirror = find_mirrored_site(infos[0]["config"])
        return infos

    async def _announce(
        self, infos: Sequence[Mapping[str, Any]], listening: Sequence[asyncio.Event]
    ) -> None:
        for event in listening:
            await event.wait()  # whoever reads that the server is ready may ask for its report
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
                "this site is a mirror of site %s and takes no lines: shippers go there, until --mirror is '' here",
                self._mirror,
            )
        self._write_state()
        self._ready.set()

    async def _answer(self, message: Message) -> None:
        """Answer with the report: see `NodeReport`; or with names: see `NAMES_REQUEST`."""
        if message.data == NAMES_REQUEST:
            names = self._server.names if self._server else {}
            await self.connection.publish(message.reply, json.dumps(names).encode())
            return
        version = (await self.connection.client()).connected_server_version
        store, tls = self.conf.credentials, self.conf.tls
        report = NodeReport(
            name=self.settings.name,
            version=f"{version.major}.{version.minor}.{version.patch}",
            nats_server_pid=self._server.pid if self._server else None,
            credentials=len(store.credentials) if store.is_secured else None,
            certificates=read_expiries(tls.files if tls else ()),
            mirror=self._mirror,
            site_remotes=len(self.settings.site_remote),
            site_links=await self._site_links(),
            free=shutil.disk_usage(self.folder).free,
            reserve=self.reserve,
            frozen=self.frozen or None,
            encrypted=self.settings.encryption_key_file is not None,
            retention=self.retention,
        )
        await self.connection.publish(message.reply, report.model_dump_json().encode())

    async def _site_links(self) -> int | None:
        """Return to how many remote sites the server is connected; None without an answer."""
        if not self.settings.site_remote:
            return 0
        question = json.dumps({"server_name": self.settings.name, "exact_match": True}).encode()
        try:
            answer = await self.connection.request(_LEAF_NODES, question, patience=_PATIENCE)
            leaves = json.loads(answer.data)["data"].get("leafs") or ()
        except (ConnectionLost, Rejected, ValueError, KeyError):
            return None
        return sum(bool(one.get("is_spoke")) for one in leaves)

    async def _answer_credentials(self, message: Message) -> None:
        """Answer an admin who asks for the credentials, or revokes some: see `CredentialsReport`."""
        own = self.settings.name
        answer = await answer_credentials(self.folder, own, self.reload, message)
        await self.connection.publish(message.reply, answer)

    @property
    def reserve(self) -> int:
        """How many bytes of the store's disk are to stay free."""
        return compute_reserve(self.settings, self._space.total)

    def restart(self, reason: str, pause: float) -> None:
        """Have nats-server restarted, unless it was in the last `pause` seconds."""
        if time.monotonic() - self._restarted >= pause:
            self._restarted = time.monotonic()
            logger.warning("restarting nats-server: %s", reason)
            self._restart_wanted.set()

    async def change_settings(self, settings: BrokerSettings) -> None:
        """Make new settings count, as far as a running broker can; raises `OperatorError` and keeps the current ones."""
        at_once = {*type(settings).model_fields} - _AT_START
        settings, changes = merge_reloaded(self.settings, settings, at_once)
        await self.reload(settings)
        logger.info("settings reloaded; %s", changes)

    async def reload(self, settings: BrokerSettings | None = None) -> None:
        """Take over settings, credentials and certificates as they are now: the only way by which a running server changes."""
        await self._ready.wait()  # what was read at the start may be old by then
        async with self._reloading:
            if self._restart_wanted.is_set():
                raise OperatorError("nats-server is being restarted; try again after that")
            try:
                await self._reload(settings or self.settings)
            finally:  # credentials may count by now, though the cluster has not answered
                self._write_state()

    async def _reload(self, settings: BrokerSettings) -> None:
        self._stamps = _stamped(self.folder, self.conf.tls)
        # thousands of credentials take a second, in which nobody else is to wait
        conf = await asyncio.to_thread(self._resolve, settings)
        # these count at a start only
        if (conf.http_path, conf.own) != (self.conf.http_path, self.conf.own):
            logger.info("restarting nats-server, since this cannot change while it runs")
            self._wanted = settings
            self._restart_wanted.set()
            return
        if self._server:
            write_atomic(self.folder / _CONF, conf.text, _CONF_MODE)
            self._server.names |= conf.names  # before somebody new gets in
            await self._server.reload()
        if conf.credentials.revision != self.conf.credentials.revision:
            taken = format_count(len(conf.credentials.credentials), "credential")
            logger.info("took over %s", taken)
        self.conf = conf
        try:
            async with asyncio.timeout(_CLUSTER_PATIENCE if settings.cluster else None):
                await self._provision(conf)
        except TimeoutError:
            raise OperatorError(f"the cluster does not answer: {self._waits_for}") from None

    def _resolve(self, settings: BrokerSettings) -> ServerConf:
        # with the space that there was at the start: what the server has stored since then is its own affair
        conf = resolve(settings, self.folder, self._keys, self._space)
        if self.conf.credentials.is_secured and not conf.credentials.is_secured:
            raise ConfigurationError(
                f"{self.folder / CREDENTIALS} is gone or empty; put back a copy of it, or stop the broker to open it"
            )
        return conf

    def _with_ports(self, settings: BrokerSettings) -> BrokerSettings:
        """Return settings whose free ports stay, over a restart, those that the system chose."""
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
            server=self._url(),
            http=f"http://{http}{conf.http_path}" if http else None,
            store_dir=str(self.folder),
            pid=os.getpid(),
            nats_server_pid=self._server.pid,
            revision=self.conf.credentials.revision,
        )

    async def _follow_files(self) -> None:
        """Reload where a file has changed, or a reload failed: a disk may refuse once."""
        await self._ready.wait()
        failed = ""
        while True:
            if failed or _stamped(self.folder, self.conf.tls) != self._stamps:
                before, failed = failed, ""
                try:
                    await self.reload()
                except OperatorError as error:
                    if (failed := str(error)) != before:
                        logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it
            await asyncio.sleep(_RETRY_AFTER if failed else _LOOK_EVERY)


Background = Callable[[ServerContext], Coroutine[Any, Any, None]]
"""Makes what runs beside a server."""


def _stamped(folder: Path, tls: TlsConf | None) -> dict[Path, object]:
    """Return what distinguishes one content of each file that is followed from another; nothing of a file that is not there."""
    found = dict[Path, object]()
    for file in (folder / CREDENTIALS, *(tls.files if tls else ())):
        with suppress(OSError):
            status = file.stat()
            found[file] = status.st_ino, status.st_size, status.st_mtime_ns
    return found
