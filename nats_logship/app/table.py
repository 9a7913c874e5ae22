"""Tables, lines and progress for people, by rich: in colour on a terminal, unless NO_COLOR is set, and plain anywhere else.

What others wrote is shown as it is, never read as markup, with an escape for whatever a terminal would act on. Imported
only where something is shown: rich takes 80 ms, and 0.8 ms a row, so that a table has no more than 500 rows.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from nats_logship.app.text import printable

_MOST_ROWS = 500
Advance = Callable[[int], None]
"""Is called with how much further a long piece of work is, in the unit of its size."""
_WIDE = 10_000  # columns where the output is no terminal: no line is folded there


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    most: int = _MOST_ROWS,
) -> Group:
    """Return rows below their head, and how many are left out where there are more than `most`.

    The columns counted in `left` are aligned on the left, the others, mostly numbers, on the right.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, name in enumerate(head):
        made.add_column(plain(name), justify="left" if place in left else "right", overflow="fold")
    for row in rows[:most]:
        made.add_row(*map(plain, row))
    more = [plain(f"and {len(rows) - most:,} more; --json has all")] if len(rows) > most else []
    return Group(made, *more)


def plain(text: str, style: str = "") -> Text:
    """Return a text in which nothing is markup, nor acts on a terminal."""
    return Text(printable(text), style)


def stdout() -> Console:
    """Return standard output as rich writes to it."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def show(*parts: RenderableType) -> None:
    """Write texts and tables to standard output; a plain text keeps its lines, however long."""
    out = stdout()
    for part in parts:
        out.print(plain(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))


@contextmanager
def progress(label: str, size: int) -> Iterator[Advance]:
    """Show a piece of work of about `size` as a bar on standard error, where that is a terminal, and yield what moves it on."""
    from rich.progress import Progress

    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(label, total=size)
        yield lambda more: bar.advance(task, more)
