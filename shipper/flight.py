"""The one round that is on its way to the broker; never a second one. What is sent, and how, is none of its business."""

import asyncio
from collections.abc import Coroutine

__all__ = ["Flight"]


class Flight:
    """A task at most; times are those of the loop, in seconds."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._launched = float("-inf")

    @property
    def has_begun(self) -> bool:
        """Whether a round was launched whose landing nobody has seen."""
        return self._task is not None

    @property
    def is_under_way(self) -> bool:
        """Whether a round has been sent and not been acknowledged."""
        return self._task is not None and not self._task.done()

    @property
    def age(self) -> float:
        """Seconds since the last launch; infinite before the first."""
        return asyncio.get_running_loop().time() - self._launched

    def launch(self, sending: Coroutine[None, None, None], group: asyncio.TaskGroup) -> None:
        """Send a round as a task of `group`; the one before must have landed."""
        self._launched = asyncio.get_running_loop().time()
        self._task = group.create_task(sending)

    async def land(self, timeout: float) -> bool:  # noqa: ASYNC109 - running out of it is no error here
        """Return whether nothing is on its way, after `timeout` seconds at most; raises what went wrong with it."""
        if (task := self._task) is None:
            return True
        done, _ = await asyncio.wait({task}, timeout=timeout)
        if done:
            self._task = None
            await task
        return bool(done)
