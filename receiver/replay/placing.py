"""Which place in the output folder each file of an attempt gets, so that no two meet. Reads names only."""

from collections.abc import Iterable
from pathlib import Path

from receiver.storage import rotation
from receiver.storage.folders import walk
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.store import Store

__all__ = ["Places", "is_of"]


class Places:
    """The places that are given away, in the order of the attempts."""

    def __init__(self, layout: Layout) -> None:
        """Have given none."""
        self._layout = layout
        self._names = Names(Store.in_memory(), layout, Days())
        self._taken: set[str] = set()

    def of(self, partition: int, folder: Path) -> dict[str, Path]:
        """Return the files of an attempt at a partition by their places; raises OSError.

        The second partition that has lines of a host's file gets one of its own, as a receiver's does, and a path that is
        a file already becomes no folder.
        """
        names = sorted(walk(folder))
        lives = {live: self._place(live, partition) for live in map(rotation.live_of, names)}
        self._taken.update(lives.values())
        found = ((name, rotation.live_of(name)) for name in names)
        return {lives[live] + name.removeprefix(live): folder / name for name, live in found}

    def _place(self, live: str, partition: int) -> str:
        path = self._names.untangled(live)
        if path in self._taken:
            path = self._names.untangled(self._layout.marked(live, f"..p{partition}"))
        return path


def is_of(layout: Layout, output: Path, name: str) -> bool:
    """Say whether all that is at a name in the output folder has a path of the layout; raises OSError."""
    path = output / name
    is_folder = path.is_dir() and not path.is_symlink()
    paths: Iterable[str] = walk(output, name) if is_folder else (name,)
    return not name.startswith(".") and all(layout.holds(rotation.live_of(p)) for p in paths)
