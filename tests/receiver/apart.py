"""Work that needs a Spark of its own: a process holds one at a time, and ours may have that of the fixture `spark`."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def apart(work: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call a function of a module in a process of its own; return what it returns, raise what it raises."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()
