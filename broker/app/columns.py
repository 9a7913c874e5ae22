"""Rows as columns, for people. Decides only."""

from collections.abc import Collection, Sequence

from broker.app.printable import printable

__all__ = ["columns"]


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return rows, the first one the heads, as lines with columns as wide as they need to be.

    The columns counted in `left` begin at the same place, the others, numbers mostly, end at the same place.
    What is not to be printed stands there as an escape: others wrote much of what is shown.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
