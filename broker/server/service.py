"""`logbroker run`: a locked store and its nats-server, from the start to a signal, under a service manager."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from broker.app.exits import Exit, OperatorError
from broker.app.program import log_to_stderr
from broker.app.service import Notifier, Supervisor, differences
from broker.app.shutdown import Shutdown
from broker.server.context import Background, ServerContext
from broker.server.process import examine
from broker.server.resolve import own_name
from broker.server.state_file import State
from broker.server.store import check_membership, locked_store, remember_membership, store_error
from broker.settings import BrokerSettings

__all__ = ["log_as_set", "serve"]

_AT_START = frozenset(
    {
        *("store_dir", "listen", "http", "metrics", "server_name", "nats_server", "memory"),
        *("cluster", "cluster_listen", "encryption_key_file", "encryption_cipher"),
    }
)
logger = logging.getLogger(__name__)


class _Service:
    """The broker of one folder, as the service manager sees it."""

    def __init__(self, settings: BrokerSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._context: ServerContext | None = None

    @property
    def is_ready(self) -> bool:
        """Whether clients are served, or the others of its cluster are waited for."""
        return self._context is not None and (
            self._context.is_ready or bool(self._context.waits_for)
        )

    def news(self) -> object:
        """Return what changes when the status does."""
        return self.status()

    def status(self) -> str:
        """Return one line on how the broker is."""
        if self._context is not None and self._context.waits_for:
            return f"waiting for its cluster: {self._context.waits_for}"
        if self._context is not None and self._context.frozen:
            return f"FROZEN, nothing is stored: {self._context.frozen}"
        return "serving" if self.is_ready else "starting"

    def is_moving(self, most: float) -> bool:
        """Whether nats-server has answered within `most` seconds; while it recovers its store it may take its time."""
        answered = self._context.answered if self._context else None
        return answered is None or time.monotonic() - answered < most

    async def run(self, background: Sequence[Background]) -> None:
        """Serve until cancelled; raises `OperatorError` when that cannot be, or nats-server ends by itself."""
        settings, folder = self._settings, self._folder
        binary = examine(settings.nats_server)
        with locked_store(folder) as lock:
            State.remove(folder)
            check_membership(folder, settings.cluster, own_name(settings))
            self._context = ServerContext(settings, folder, binary, _now, background)
            remember_membership(folder, settings.cluster, own_name(settings))
            await self._context.run(lock)

    async def change(self, settings: BrokerSettings) -> None:
        """Make new settings count, as far as a running broker can; raises `OperatorError` and keeps the current ones."""
        if self._context is None:
            raise OperatorError("nats-server is still starting; try again when it is ready")
        changeable = set(type(settings).model_fields) - _AT_START
        changes = differences(self._context.settings, settings, changeable)
        await self._context.reload(changes.settings)
        log_as_set(changes.settings)
        logger.info("settings reloaded; %s", changes)


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
    service, ending = _Service(settings, folder), Shutdown(Exit.DONE)
    supervisor = Supervisor(service, notifier, reread, service.change)

    def end() -> float:
        logger.info("stopping")
        supervisor.stopping()
        return 0.0

    ending.listen(end)
    supervisor.hear_hang_ups()
    try:
        async with ending.limit:
            await supervisor.attend(service.run(background))
    except TimeoutError:
        pass  # ended as asked
    except OSError as error:
        raise store_error(folder, error) from None
    finally:
        supervisor.hear_no_hang_ups()


def log_as_set(settings: BrokerSettings) -> None:
    """Send our log and nats-server's to stderr: of the latter what is wrong, unless all is wanted."""
    log_to_stderr(settings)
    level = logging.DEBUG if settings.log_level == "debug" else logging.WARNING
    logging.getLogger("nats-server").setLevel(level)


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
