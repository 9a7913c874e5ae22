"""Which rotation chain a path belongs to. Knows names only."""

from collections.abc import Collection

from shipper.files.rotation import live_names

__all__ = ["family_of"]


def family_of(path: str, lives: Collection[str]) -> str:
    """Return the live path that `path` was rotated from, if that is one of `lives`, else `path` itself."""
    folder, _, name = path.rpartition("/")
    for live in live_names(name):
        if f"{folder}/{live}" in lives:
            return f"{folder}/{live}"
    return path
