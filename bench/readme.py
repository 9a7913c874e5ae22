"""Parts of the README that commands write, between two markers that stay."""

__all__ = ["exchanged"]


def exchanged(readme: str, text: str, begin: str, end: str) -> str:
    """Return the README with what stands between its two markers exchanged; raises ValueError where it has no place for it."""
    head, begins, rest = readme.partition(begin)
    _, ends, tail = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"no place between {begin} and {end}")
    return f"{head}{begin}\n{text}{end}{tail}"
