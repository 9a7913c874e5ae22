"""What the loop of an agent asks of whatever lines come from: files that are followed, or standard input."""

import asyncio
from collections.abc import Container
from typing import Protocol

from broker.block import Block
from shipper.cursor import Cursor
from shipper.filestate import FileState
from shipper.notice import Notice

__all__ = ["Source"]


class Source(Protocol):
    """Lines to be had in order, as blocks whose spans follow each other; `Follower` says what each call means.

    `is_repeatable` is whether what was gathered and not shipped can be gathered again by a later run; if not, all of
    it must be shipped before this one ends. `has_ended` is whether nothing more can ever come.
    """

    @property
    def look_due(self) -> bool: ...  # noqa: D102
    @property
    def is_waiting(self) -> bool: ...  # noqa: D102
    @property
    def is_repeatable(self) -> bool: ...  # noqa: D102
    @property
    def has_ended(self) -> bool: ...  # noqa: D102
    @property
    def wake(self) -> asyncio.Event: ...  # noqa: D102
    @property
    def is_unsettled(self) -> bool: ...  # noqa: D102
    @property
    def is_oriented(self) -> bool: ...  # noqa: D102
    @property
    def patience(self) -> float: ...  # noqa: D102
    @property
    def open_files(self) -> int: ...  # noqa: D102
    async def look(self) -> list[Notice]: ...  # noqa: D102
    async def gather(self, budget: int) -> list[Block]: ...  # noqa: D102
    async def wait(self, timeout: float) -> None: ...  # noqa: ASYNC109, D102
    def states(self) -> list[FileState]: ...  # noqa: D102
    def troubles(self) -> list[Notice]: ...  # noqa: D102
    def passed_over(self) -> list[str]: ...  # noqa: D102
    def starts(self, but: Container[str]) -> list[Cursor]: ...  # noqa: D102
    async def close(self) -> None: ...  # noqa: D102
