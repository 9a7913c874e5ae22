"""Tables and text for people, by rich: in colour on a terminal, unless NO_COLOR is set.

Text of others is never read as markup, and its control characters are escaped. Import this module
only to show something: rich takes 80 ms, and 0.8 ms a row, so a table has at most 500 rows.
"""

import sys
from collections.abc import Collection, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from nats_logship.app.text import printable

_MAX_ROWS = 500
_WIDE = 10_000  # columns of an output that is no terminal: rich breaks no line


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    most: int = _MAX_ROWS,
) -> Group:
    """Return a table of at most `most` rows; the columns in `left` are aligned to the left."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(head):
        made.add_column(plain(name), justify="left" if index in left else "right", overflow="fold")
    for row in rows[:most]:
        made.add_row(*map(plain, row))
    more = [plain(f"and {len(rows) - most:,} more; --json has all")] if len(rows) > most else []
    return Group(made, *more)


def plain(text: str, style: str = "") -> Text:
    """Return a text without markup and control characters."""
    return Text(printable(text), style)


def stdout() -> Console:
    """Return standard output as rich writes to it."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def show(*parts: RenderableType) -> None:
    """Write texts and tables to standard output; lines of a text are not broken."""
    out = stdout()
    for part in parts:
        out.print(plain(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))
