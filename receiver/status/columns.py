"""Rows as columns, for people."""

from collections.abc import Sequence

from broker.app import columns as aligned

__all__ = ["columns"]


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Write rows as columns as wide as they need to be, with escapes for what is not to be printed."""
    return "\n".join(aligned.columns(rows, left=range(len(rows[0]))))
