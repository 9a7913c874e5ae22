"""How far a long work has come: a bar on a terminal, nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Advance", "progress"]

Advance = Callable[[int], None]
"""Is called with each further number of bytes."""


@contextmanager
def progress(label: str, size: int) -> Iterator[Advance]:
    """Show a work of about `size` bytes on standard error, and yield what moves it on."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(label, total=size)
        yield lambda more: bar.advance(task, more)
