"""How far a long piece of work is: a bar on a terminal, elsewhere a log message every ten seconds."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

__all__ = ["Advance", "progress"]

Advance = Callable[[int], None]
"""Is called with how much further the work is, in the unit of its size."""

_LOG_EVERY = 10.0  # seconds
logger = logging.getLogger(__name__)


@contextmanager
def progress(
    label: str, size: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Advance]:
    """Show a piece of work of about `size` on standard error, and yield what moves it on; `clock` is in seconds."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    is_shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task(label, total=size)
        yield (lambda more: bar.advance(task, more)) if is_shown else _logged(label, size, clock)


def _logged(label: str, size: int, clock: Callable[[], float]) -> Advance:
    done, due = 0, clock() + _LOG_EVERY

    def advance(more: int) -> None:
        nonlocal done, due
        done += more
        if (now := clock()) >= due:
            due = now + _LOG_EVERY
            logger.info("%s: %.0f %%", label, min(100.0, 100 * done / max(1, size)))

    return advance
