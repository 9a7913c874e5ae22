"""`logbroker run`: a store and the lives of its nats-server, from the start to a signal. The wiring; decides nothing.

lock ─▶ life of nats-server ─▶ (restart wanted) another life … signal ─▶ end

A nats-server that ends by itself ends the broker, and the service manager starts both; one that was ended so that it starts
again is started again here.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from broker.app.desk import Desk
from broker.app.ending import Ending
from broker.app.exits import Exit, OperatorError
from broker.app.notify import Notifier
from broker.app.program import log_to_stderr
from broker.app.reload import differences
from broker.server.binary import examine
from broker.server.door import Door
from broker.server.encrypting import encryption_of
from broker.server.membership import check_membership, remember_membership
from broker.server.node import Beside, House, Node
from broker.server.outfit import own_name
from broker.server.past import Past
from broker.server.ready import unready
from broker.server.store import held_store, told
from broker.settings import BrokerSettings

__all__ = ["log_as_told", "serve"]

_AT_START = frozenset(
    {
        *("store_dir", "listen", "http", "server_name", "nats_server", "memory"),
        *("cluster", "cluster_listen", "encryption_key_file", "encryption_cipher"),
    }
)
logger = logging.getLogger(__name__)


class Service:
    """The broker of one folder."""

    def __init__(self, settings: BrokerSettings, folder: Path, beside: Sequence[Beside]) -> None:
        """Remember what to run; `folder` is absolute."""
        self._beside = tuple(beside)
        self._settings = settings
        self._folder = folder
        self._node: Node | None = None

    @property
    def is_ready(self) -> bool:
        """Whether clients are served, or the others of its cluster are waited for."""
        return self._node is not None and (self._node.is_ready or bool(self._node.waits_for))

    def news(self) -> object:
        """Return what changes when the status does."""
        return self.status()

    def status(self) -> str:
        """Return one line on how it goes."""
        if self._node is not None and self._node.waits_for:
            return f"waiting for its cluster: {self._node.waits_for}"
        if self._node is not None and self._node.frozen:
            return f"FROZEN, nothing is stored: {self._node.frozen}"
        return "serving" if self.is_ready else "starting"

    def is_moving(self, most: float) -> bool:
        """Whether nats-server has answered within `most` seconds; one that brings back its store may take its time."""
        answered = self._node.answered if self._node else None
        return answered is None or time.monotonic() - answered < most

    async def run(self) -> None:
        """Serve until cancelled; raises `OperatorError` when that cannot be, or nats-server ends by itself."""
        binary = examine(self._settings.nats_server)
        if binary.is_unknown:
            logger.warning(
                "%s (version %s) is not the nats-server of this release: its hash is %s; "
                "if it is meant, name it with --nats-server",
                binary.path,
                binary.version,
                binary.sha256,
            )
        with held_store(self._folder) as lock:
            unready(self._folder)
            settings = self._settings
            check_membership(self._folder, settings.cluster, own_name(settings))
            key = encryption_of(settings, self._folder)
            remember_membership(self._folder, settings.cluster, own_name(settings))
            house = House(self._folder, lock, binary, Door(self._folder), key, _now, self._beside)
            past = Past()
            while True:
                self._node = Node(house, settings, past)
                await self._node.live()
                settings, past = self._node.settings, self._node.past

    def settings_after(self, reread: Callable[[], BrokerSettings]) -> BrokerSettings:
        """Return the settings read again, or the present ones where those will not do.

        What stands beside them is taken over all the same: whose credential was taken away does not stay for a slip in a
        file. Raises `OperatorError` while there are none yet.
        """
        try:
            return reread()
        except OperatorError as error:
            if self._node is None:
                raise
            logger.error("the old settings go on: %s", error)  # noqa: TRY400 - a person must mend it
            return self._node.settings

    async def change(self, settings: BrokerSettings) -> None:
        """Make new settings count, as far as a running broker can; raises `OperatorError` and goes on as before."""
        if self._node is None:
            raise OperatorError("nats-server is still starting; try again when it is ready")
        is_new = settings is not self._node.settings
        at_once = set(type(settings).model_fields) - _AT_START
        done = differences(self._node.settings, settings, at_once)
        await self._node.reload(done.settings)
        log_as_told(done.settings)
        if is_new:
            logger.info("settings read again; %s", done)


async def serve(
    settings: BrokerSettings,
    folder: Path,
    notifier: Notifier,
    reread: Callable[[], BrokerSettings],
    beside: Sequence[Beside] = (),
) -> None:
    """Run the broker on `folder`, absolute, until SIGTERM or SIGINT; raises `OperatorError` when it cannot start or ends by itself.

    `beside` makes what runs beside each nats-server once that is ready.
    """
    service, ending = Service(settings, folder, beside), Ending(Exit.DONE)
    desk = Desk(service, notifier, lambda: service.settings_after(reread), service.change)
    ending.listen(lambda: _end(desk))
    desk.hear_hang_ups()
    try:
        async with ending.limit:
            await desk.attend(service.run())
    except TimeoutError:
        pass  # ended as asked
    except OSError as error:
        raise told(folder, error) from None
    finally:
        desk.hear_no_hang_ups()


def log_as_told(settings: BrokerSettings) -> None:
    """Send our log and nats-server's to stderr: of the latter what is wrong, unless all is wanted."""
    log_to_stderr(settings)
    level = logging.DEBUG if settings.log_level == "debug" else logging.WARNING
    logging.getLogger("nats-server").setLevel(level)


def _end(desk: Desk[BrokerSettings]) -> float:
    logger.info("stopping")
    desk.stopping()
    return 0.0


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
