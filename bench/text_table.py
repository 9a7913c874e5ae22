"""Tables in plain text: the first column to the left, the others to the right."""

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table as lines; every row has as many cells as there are heads."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [_line(heads, widths), "  ".join("-" * width for width in widths)]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join(
        [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    ).rstrip()
