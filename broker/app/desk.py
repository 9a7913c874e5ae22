"""What stands beside a program's work for the world outside: systemd, listening sockets, settings read again.

Takes no part in the work: it speaks for a view of it, and hands new settings in.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Generic, TypeVar

from broker.app.exits import OperatorError, leading
from broker.app.listening import Page
from broker.app.notify import Notifier
from broker.app.printable import printable
from broker.app.supervision import Service, Supervised

__all__ = ["Desk", "health_page"]

_HANG_UP = {signal.SIGHUP}
Settings = TypeVar("Settings")
logger = logging.getLogger(__name__)


class Desk(Generic[Settings]):
    """The desk of one program."""

    def __init__(
        self,
        view: Supervised,
        notifier: Notifier,
        reread: Callable[[], Settings],
        change: Callable[[Settings], Awaitable[None]],
    ) -> None:
        """Remember whom to tell and whom to ask.

        `reread` reads the settings again, in a thread, and `change` makes them count; both raise `OperatorError` kinds
        for what will not do.
        """
        self._service = Service(notifier, view)
        self._reread = reread
        self._change = change
        self._hung_up = asyncio.Event()

    async def attend(
        self,
        work: Coroutine[Any, Any, None],
        beside: Iterable[AbstractAsyncContextManager[object]] = (),
    ) -> None:
        """Do the work, and be there for others until it is done; `beside` is entered before and left after it.

        Raises what `work` and `beside` raise.
        """
        try:
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for context in beside:
                    await stack.enter_async_context(context)
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

    async def _read_again_when_asked(self) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            self._service.reloading()
            try:
                await self._change(await asyncio.to_thread(self._reread))
            except OperatorError as error:
                logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it
            self._service.reloaded()


def health_page(ailing: str, well: str = "ok") -> Page:
    """Return the page of `/healthz` for what ails a program, if anything does; `well` is what it says else."""
    return Page(503 if ailing else 200, f"{printable(ailing or well)}\n".encode())
