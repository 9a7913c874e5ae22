"""Sizes in bytes as people read them."""

__all__ = ["format_size"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_size(size: int) -> str:
    """Write a size with at most one decimal, in the largest unit that leaves at least one: `0 B`, `1.5 KiB`."""
    value, place = float(size), 0
    while value >= 1023.95 and place < len(_UNITS) - 1:
        value, place = value / 1024, place + 1
    return f"{value:.0f} {_UNITS[place]}" if place == 0 else f"{value:.1f} {_UNITS[place]}"
