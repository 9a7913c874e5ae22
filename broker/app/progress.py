"""How far a long piece of work is: a bar on a terminal, elsewhere nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Is called with how much further the work is, in the unit of its size."""


@contextmanager
def progress(label: str, size: int) -> Iterator[Advance]:
    """Show a piece of work of about `size` on standard error, and yield what moves it on."""
    console = Console(stderr=True)
    columns = (
        *(TextColumn("{task.description}"), BarColumn()),
        *(TaskProgressColumn(), TimeRemainingColumn()),
    )
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(label, total=size)
        yield lambda more: bar.advance(task, more)
