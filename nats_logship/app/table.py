"""Tables and text for people, by rich: in colour on a terminal, unless NO_COLOR is set.

Text of others is never read as markup, and its control characters are escaped. Import this module
only to show something: rich takes 80 ms, and 0.8 ms a row, so a table has at most 500 rows.
"""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from nats_logship.app.text import printable

_MAX_ROWS = 500
_GAP = 2  # columns between two cells
_WIDE = 10_000  # columns of an output that is no terminal: rich breaks no line


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table without the columns for which a terminal is too narrow; no cell is broken.

    If nothing more may be left out, its lines are longer than those of the terminal.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int]
    less: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose columns, and write them and which ones are left out."""
        columns = [[*map(printable, column)] for column in zip(self.head, *self.rows, strict=True)]
        widths = {column[0]: max(map(cell_len, column)) + _GAP for column in columns}
        missing = list[str]()
        for name in self.less:
            if sum(widths.values()) - _GAP <= options.max_width:
                break
            missing.append(name)
            del widths[name]
        made = Table.grid(padding=(0, _GAP, 0, 0))
        kept = [index for index, name in enumerate(self.head) if name in widths]
        for index in kept:
            made.add_column(justify="left" if index in self.left else "right", no_wrap=True)
        for number, row in enumerate((self.head, *self.rows)):
            made.add_row(*(plain(row[index], "" if number else "bold") for index in kept))
        width = max(options.max_width, sum(widths.values()))
        yield from console.render(made, options.update(width=width))
        if missing:
            yield plain(f"{', '.join(missing)}: in a wider terminal, or with --json", "dim")


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    less: Sequence[str] = (),
    most: int = _MAX_ROWS,
) -> Group:
    """Return a table of at most `most` rows; the columns in `left` are aligned to the left.

    The columns named in `less` are left out, the first ones first, if a terminal is too narrow.
    """
    more = [plain(f"and {len(rows) - most:,} more; --json has all")] if len(rows) > most else []
    return Group(FittedTable(head, rows[:most], left, less), *more)


def plain(text: str, style: str = "") -> Text:
    """Return a text without markup and control characters."""
    return Text(printable(text), style)


def stdout() -> Console:
    """Return standard output as rich writes to it."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def show(*parts: RenderableType) -> None:
    """Write texts and tables to standard output; their lines are not broken."""
    out = stdout()
    for part in parts:
        out.print(plain(part) if isinstance(part, str) else part, soft_wrap=True)
