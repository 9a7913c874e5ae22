"""Cursors and tailers by what they are looked up by, built for one look. Memory only."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from shipper.cursor import Cursor
from shipper.files.rotation import age
from shipper.files.sighting import Sighting
from shipper.files.tailer import Tailer

__all__ = ["Index"]


@dataclass(slots=True)
class Index:
    """All cursors by family, those without a file by inode as well, and the tailers by family."""

    cursors: defaultdict[str, list[Cursor]] = field(default_factory=lambda: defaultdict(list))
    by_inode: defaultdict[int, list[Cursor]] = field(default_factory=lambda: defaultdict(list))
    tailers: defaultdict[str, list[Tailer]] = field(default_factory=lambda: defaultdict(list))

    def add_tailer(self, tailer: Tailer, home: str) -> None:
        """Take up a followed file; `home` is the family it came from, where copies of it may be left.

        A hard link shows it in another one once its first name is gone.
        """
        self.tailers[tailer.sighting.family].append(tailer)
        for family in {tailer.sighting.family, home}:
            self.cursors[family].append(tailer.cursor)

    def add_known(self, cursor: Cursor, families: Iterable[str]) -> None:
        """Take up a cursor whose file is not followed."""
        for family in families:
            self.cursors[family].append(cursor)
        self.by_inode[cursor.identity.inode].append(cursor)

    def known(self, sighting: Sighting) -> list[Cursor]:
        """Return the cursors without a file that a file may belong to by its inode.

        A cursor that knows nothing else is that of a file in which nothing was seen: such an inode may soon be another's,
        so it is none of another family, nor compressed.
        """
        same = self.by_inode[sighting.key.inode]
        ours = () if sighting.packed is not None else self.cursors[sighting.family]
        return [c for c in same if c.offset or c.identity.head_length or c in ours]

    def part(self, cursor: Cursor) -> None:
        """Forget that a file with the cursor's inode may be its file: it was truncated."""
        same = self.by_inode[cursor.identity.inode]
        self.by_inode[cursor.identity.inode] = [c for c in same if c.file != cursor.file]

    def cursors_near(self, sighting: Sighting) -> tuple[Cursor, ...]:
        """Return the cursors that a file may belong to."""
        near = (*self.cursors[sighting.family], *self.by_inode[sighting.key.inode])
        return tuple({cursor.file: cursor for cursor in near}.values())

    def oldest(self, family: str) -> tuple[int, int, str] | None:
        """Return the age of the oldest rotated file that is followed."""
        rotated = (t.sighting for t in self.tailers[family] if not t.sighting.is_live)
        return min((age(s.modified, s.path) for s in rotated), default=None)
