"""What stands beside the work of an agent for the world outside: systemd, live status, metrics, settings read again.

Takes no part in the work: it looks at a view of it, and hands new settings in.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

from broker.address import Address
from broker.exits import OperatorError, leading
from broker.listening import Listening, Page
from broker.notify import Notifier
from broker.supervision import Service
from shipper.settings import ShipperSettings
from shipper.telling.health import ailment
from shipper.telling.live import Live
from shipper.telling.view import View

__all__ = ["Desk"]

_HANG_UP = {signal.SIGHUP}
logger = logging.getLogger(__name__)


class Desk:
    """The desk of one agent."""

    def __init__(
        self,
        view: View,
        notifier: Notifier,
        reread: Callable[[], ShipperSettings],
        change: Callable[[ShipperSettings], Awaitable[None]],
    ) -> None:
        """Remember whom to tell and whom to ask.

        `reread` reads the settings again, in a thread, and `change` makes them count; both raise `OperatorError` kinds
        for what will not do.
        """
        self._view = view
        self._service = Service(notifier, view)
        self._reread = reread
        self._change = change
        self._hung_up = asyncio.Event()

    async def attend(
        self, work: Coroutine[Any, Any, None], folder: Path, listen: Address | None
    ) -> None:
        """Do the work, and be there for others until it is done.

        `folder` is that of the host's positions. Raises what `work` raises, and `ConfigurationError` where it cannot listen.
        """
        try:
            async with (
                self._listening(listen),
                Live(folder, self._view.report),
                asyncio.TaskGroup() as group,
            ):
                others = [
                    group.create_task(self._service.run()),
                    group.create_task(self._read_again_when_asked()),
                ]
                await work
                for other in others:
                    other.cancel()
        except BaseExceptionGroup as errors:
            raise leading(errors) from None
        finally:
            work.close()  # where it could not even begin

    def hear_hang_ups(self) -> None:
        """Take over SIGHUP, also one that has waited until now."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hung_up.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANG_UP)

    def hear_no_hang_ups(self) -> None:
        """Let SIGHUP wait, for ever if need be: it is no reason to end in disorder."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANG_UP)

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._service.stopping()

    def _listening(self, address: Address | None) -> AbstractAsyncContextManager[object]:
        if address is None:
            return nullcontext()
        from shipper.telling.metrics import Metrics  # a library that nobody else needs

        return Listening(address, {"/metrics": Metrics(self._view).page, "/healthz": self._health})

    def _health(self) -> Page:
        ailing = ailment(self._view.vitals())
        return Page(503, f"{ailing}\n".encode()) if ailing else Page(200, b"ok\n")

    async def _read_again_when_asked(self) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            self._service.reloading()
            try:
                await self._change(await asyncio.to_thread(self._reread))
            except OperatorError as error:
                logger.error("the old settings go on: %s", error)  # noqa: TRY400 - a person must mend it
            self._service.reloaded()
