"""What is remembered of files that are not followed: cursors without a file, and live paths whose siblings are looked for."""

from collections.abc import Iterable

from shipper.cursor import Cursor
from shipper.files.families import family_of
from shipper.files.selection import Selection
from shipper.files.tailer import Tailer
from shipper.forgetting import forgettable

__all__ = ["Memory"]

_GROWTH = 256
"""By how much memory may grow until it is sorted out again."""


class Memory:
    """The cursors without a file by id, and the live paths; both grow, and `tidy` keeps them in bounds."""

    def __init__(self, known: Iterable[Cursor], selection: Selection) -> None:
        """Begin with all cursors, and the live paths that are selected."""
        self.cursors = {cursor.file: cursor for cursor in known}
        self.lives: set[str] = set()
        self._let_go: set[str] = set()
        self._stood: dict[str, str] = {}
        self._size = 0
        self.select(selection)

    def select(self, selection: Selection) -> None:
        """Look for siblings of the selected live paths only."""
        paths = (*self.lives, *(cursor.path for cursor in self.cursors.values()))
        self.lives = {path for path in paths if selection.shows(path)}

    def take(self, tailer: Tailer) -> None:
        """Remember how far a file was read that is followed no longer."""
        self.cursors[tailer.file] = tailer.cursor
        self._stood[tailer.file] = tailer.sighting.family

    def families_of(self, cursor: Cursor) -> set[str]:
        """Return the families in which copies of a file may be left: that which it came from, and its last one.

        These are two where a hard link showed it in another one when its first name was gone.
        """
        home = family_of(cursor.path, self.lives)
        return {home, self._stood.get(cursor.file, home)}

    def take_to_keep(self, tailer: Tailer) -> None:
        """Remember a file that is let go for another selection: it is there still, and may be named again."""
        self._let_go.add(tailer.file)
        self.cursors[tailer.file] = tailer.start if tailer.is_unread else tailer.cursor

    def drop_unread(self, left: Iterable[Tailer]) -> None:
        """Forget those of which nothing was read: they have but an inode to be known by, soon another file's."""
        for tailer in left:
            if tailer.is_unread:
                self.cursors.pop(tailer.file, None)

    def drop(self, cursors: Iterable[Cursor]) -> None:
        """Forget cursors that are of files that have another one."""
        for cursor in cursors:
            self.cursors.pop(cursor.file, None)

    def tidy(self, lives: Iterable[str], now: int) -> None:
        """Forget what is long gone, if much has gathered; `lives` are the live paths of files that are there."""
        if len(self.cursors) + len(self.lives) <= self._size + _GROWTH:
            return
        gone = [cursor for cursor in self.cursors.values() if cursor.file not in self._let_go]
        for cursor in forgettable(gone, now):
            del self.cursors[cursor.file]
        self.lives &= {*lives, *(cursor.path for cursor in self.cursors.values())}
        self._stood = {file: at for file, at in self._stood.items() if file in self.cursors}
        self._size = len(self.cursors) + len(self.lives)
