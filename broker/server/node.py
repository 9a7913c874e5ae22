"""One life of nats-server: from its configuration to ready, then reloaded as often as asked, to its end. The wiring.

outfit ─▶ conf ─▶ check ─▶ start ─▶ ports ─▶ provision ─▶ ready … beside it: what is looked after … ─▶ end
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.folder import open_folder
from broker.app.sizes import format_size
from broker.app.whole import replacing, telling, write_whole
from broker.auth.certificates import Pki
from broker.client.connection import Connection
from broker.server.binary import Binary
from broker.server.certwatch import LOOK_EVERY, Certwatch
from broker.server.conf import kept_free, render
from broker.server.conf_encryption import Encryption
from broker.server.consumer_requests import ConsumerRequests
from broker.server.door import Door
from broker.server.healing import Disk, Watch
from broker.server.outfit import Outfit, put_together
from broker.server.past import Past, at_ports
from broker.server.provisioning import Held, begin, provision
from broker.server.ready import Refusal, refusal_of, unready, write_ready
from broker.server.securing import TLS_FOLDER
from broker.server.server import Ports, Server, check, started
from broker.server.speaking import speaking
from broker.server.store import measure, streams_in
from broker.server.telling import Known, Telling
from broker.settings import BrokerSettings
from broker.wire.streams import STREAM

__all__ = ["Beside", "House", "Node"]

CONF = "nats-server.conf"
_MODE = 0o600  # it holds hashes of passwords, and the secret that a cluster shares
_CLUSTER_PATIENCE = 10.0  # seconds for a cluster that has a leader to be as it is declared
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class House:
    """What stays the same over all lives: the store and its lock, the program, whom the door lets in, the key, the clock."""

    folder: Path
    lock: int
    binary: Binary
    door: Door
    encryption: Encryption | None
    now: Callable[[], datetime]
    beside: tuple["Beside", ...] = ()
    """What is made to run beside each server once it is ready, for as long as it lives."""

    @property
    def environment(self) -> dict[str, str]:
        """What nats-server finds in its environment beside ours."""
        return self.encryption.environment() if self.encryption else {}


class Node:
    """A nats-server, from its start to its end."""

    def __init__(self, house: House, settings: BrokerSettings, past: Past) -> None:
        """Remember what to run; `settings` may change by `reload`."""
        self.house = house
        self.parts: dict[str, Callable[[], Mapping[str, Any]]] = {}
        """What others add to the report, by its key."""
        self._past = past
        self._telling = Telling(house.folder, house.binary, house.now(), past.lives)
        self._health: Watch | None = None
        self._space = measure(house.folder)
        self._stored = streams_in(house.folder)
        self._outfit = self._put_together(settings)
        self._server: Server | None = None
        self._ports: Ports | None = None
        self._connection: Connection | None = None
        self._for_requests: Connection | None = None
        self._certwatch = self._watch()
        self._changing = asyncio.Lock()
        self._again = asyncio.Event()
        self._over = asyncio.Event()
        self._ready = asyncio.Event()
        self.waits_for = ""

    @property
    def connection(self) -> Connection:
        """The own connection to the server, once that is ready."""
        if self._connection is None:
            raise OperatorError("nats-server is still starting; try again when it is ready")
        return self._connection

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return self._ready.is_set()

    @property
    def settings(self) -> BrokerSettings:
        """The settings that count now."""
        return self._outfit.settings

    @property
    def past(self) -> Past:
        """What the next life has behind it."""
        healing = self._health.healing if self._health else self._past.healing
        return Past(self._past.lives + 1, self._ports, healing)

    @property
    def frozen(self) -> str:
        """The write that failed, for which nothing more is stored; empty when all is well."""
        return self._health.health.frozen if self._health else ""

    @property
    def answered(self) -> float | None:
        """When the server last answered, by the monotonic clock; None while it starts."""
        return self._health.answered if self._health else None

    async def live(self) -> None:
        """Run until a restart is wanted; cancel it for an end. Raises `OperatorError` when the server ends by itself."""
        house, outfit = self.house, self._outfit
        path, memory = house.folder / CONF, int(outfit.settings.memory)
        write_whole(path, render(outfit.conf), _MODE)
        await check(house.binary.path, path, house.environment)
        try:
            async with (
                started(house.binary.path, path, memory, house.lock, house.environment) as server,
                asyncio.TaskGroup() as group,
            ):
                self._server = server
                tasks = [group.create_task(server.attend())]
                held = await self._begin(server)
                tasks.extend(group.create_task(one) for one in self._beside())
                tasks.append(group.create_task(self._tell_ready(held)))
                await self._over.wait()
                for task in tasks:
                    task.cancel()
        finally:
            with suppress(OSError):  # where the disk refuses, the next start does it
                unready(house.folder)
            for connection in (self._connection, self._for_requests):
                if connection is not None:
                    await connection.close()

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Make what runs beside the server for as long as it lives; whatever fails there ends the broker."""
        self._health = Watch(
            self.connection,
            self._outfit.conf.name,
            Disk(self.house.folder, self._kept_free),
            self._past.healing,
            self.restart,
        )
        yield self._health.run()
        yield self._speaking.run()
        yield self._consumer_requests.run()
        yield self._watch_certificates()
        yield self._expire()
        for make in self.house.beside:
            yield make(self)

    def _kept_free(self) -> int:
        asked = self.settings.reserve
        return kept_free(self._space.total, None if asked is None else int(asked))

    async def _report(self) -> dict[str, Any]:
        if self._server is None:
            raise OperatorError("nats-server is not there yet")
        ends = self._certwatch.ends()
        known = Known(self._outfit, self._server, self.frozen, ends, self.parts)
        return await self._telling.report(known)

    def restart(self) -> None:
        """End this life in order, so that another one begins; not one that could not begin, by what stands in files now."""
        try:
            self._put_together(self.settings)
        except OperatorError as error:
            logger.error("nats-server is not started again: %s", error)  # noqa: TRY400 - a person must mend it
            return
        self._over.set()

    async def _begin(self, server: Server) -> Held:
        outfit = self._outfit
        self._ports = ports = await server.ports()
        if server.cannot_decrypt:
            raise ConfigurationError(
                f"the store {self.house.folder} is encrypted with another key; give the one that it was made with by "
                "--encryption-key-file (nothing was changed)"
            )
        scheme = "tls" if outfit.conf.tls else "nats"
        address = f"{scheme}://{outfit.conf.listen.reached_at(ports.client)}"
        self._connection = Connection([address], "logbroker", access=outfit.own)
        self._speaking = speaking(self._connection, self._report)
        # on a connection of their own, which whoever floods it with them may have closed
        self._for_requests = Connection([address], "logbroker consumers", access=outfit.own)
        self._consumer_requests = ConsumerRequests(self._for_requests)
        return await begin(self._connection, outfit, self._stored, self._wait)

    async def _tell_ready(self, held: Held) -> None:
        for one in (self._speaking, self._consumer_requests):
            await one.listens.wait()  # whoever reads that it is ready may ask it
        self._write_ready()
        self._ready.set()
        logger.info(
            "ready: %s, store %s, stream %s of at most %s, %d messages",
            self.connection.servers,
            self._outfit.conf.folder,
            STREAM,
            format_size(held.max_bytes),
            held.messages,
        )

    def _wait(self, reason: str) -> None:
        """Take note of what the cluster is waited for, and say it; it may be that the other servers start later."""
        if reason and not self.waits_for:
            logger.info("waiting for its cluster: %s", reason)
        self.waits_for = reason

    async def reload(self, settings: BrokerSettings) -> None:
        """Take over settings, book and certificates as they are now; raises `OperatorError` and goes on as before."""
        await self._ready.wait()  # what was read at the start may be old by then
        async with self._changing:
            if self._over.is_set():  # the next life reads the book, yet not these settings
                raise OperatorError("nats-server is being started again; ask once more after that")
            try:
                await self._reload(settings)
            except OperatorError as error:
                self._write_ready(refusal_of(self.house.folder, error))
                raise
            self._write_ready()
            self._again.set()

    async def _reload(self, settings: BrokerSettings) -> None:
        server, connection = self._server, self._connection
        if server is None or connection is None:
            raise OperatorError("nats-server is not there")
        # thousands of credentials take a second, in which nobody else is to wait
        outfit = await asyncio.to_thread(self._put_together, settings)
        await self._replace_conf(await asyncio.to_thread(render, outfit.conf))
        if outfit.takes_restart_after(self._outfit):
            logger.info("restarting nats-server, since this cannot change while it runs")
            self._outfit = outfit
            self.restart()
            return
        try:
            await server.reload()
        except OperatorError:
            if not self._over.is_set():  # else the file is the next life's
                write_whole(self.house.folder / CONF, render(self._outfit.conf), _MODE)
            raise
        if outfit.admission.revision != self._outfit.admission.revision:
            logger.info("took over the book of credentials: %d in it", outfit.admission.credentials)
        self._outfit, self._certwatch = outfit, self._watch(outfit)
        try:
            async with asyncio.timeout(_CLUSTER_PATIENCE if outfit.conf.cluster else None):
                await provision(connection, outfit, self._wait)
        except TimeoutError:
            raise OperatorError(f"the cluster does not answer: {self.waits_for}") from None

    async def _replace_conf(self, text: str) -> None:
        """Have nats-server check a configuration before it takes its place; raises `OperatorError`."""
        store = self.house.folder
        with (
            telling(store / CONF),
            open_folder(store) as folder,
            replacing(folder, CONF, _MODE) as half,
        ):
            half.file.write(text.encode())
            half.file.flush()
            await check(self.house.binary.path, half.path, self.house.environment)

    def _put_together(self, settings: BrokerSettings) -> Outfit:
        # with the room that there was at the start: what the server holds since then is its own affair
        outfit = put_together(settings, self.house.door, self._space, self.house.now())
        key = self.house.encryption
        conf = replace(outfit.conf, cipher=key.cipher if key else None)
        return replace(outfit, conf=at_ports(conf, self._past.ports))

    def _write_ready(self, refusal: Refusal | None = None) -> None:
        if self._server is None or self._ports is None or self._over.is_set():
            return  # it is the next life's to say
        outfit = self._outfit
        write_ready(outfit.conf, self._ports, self._server.pid, outfit.admission, refusal)

    async def _again_as_it_is(self) -> None:
        try:
            await self.reload(self.settings)
        except OperatorError as error:
            logger.error("the old settings go on: %s", error)  # noqa: TRY400 - a person must mend it

    def _watch(self, outfit: Outfit | None = None) -> Certwatch:
        files = (outfit or self._outfit).security.files
        pki = Pki(self.house.folder / TLS_FOLDER)
        return Certwatch(files, pki, self._again_as_it_is, self.house.now)

    async def _watch_certificates(self) -> None:
        while True:
            await self._certwatch.step()
            await asyncio.sleep(LOOK_EVERY)

    async def _expire(self) -> None:
        """Take over what came into the book while nobody could be told; then turn away credentials at the end of their time."""
        if self.house.door.is_behind(self._outfit.admission):
            await self._again_as_it_is()
        while True:
            left = self._outfit.admission.seconds_left(self.house.now())
            self._again.clear()
            try:
                async with asyncio.timeout(left):
                    await self._again.wait()
            except TimeoutError:
                await self._again_as_it_is()


Beside = Callable[[Node], Coroutine[Any, Any, None]]
"""Makes what runs beside a server."""
