"""Which files are followed, which are only remembered, and what every newly seen file is. Memory; touches no disk.

A file is in one of three places: followed by a tailer (by device and inode), known by a cursor without a file, or
passed over because it was rotated before our time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from shipper.chain import Live, Ruling, Stranger, Verdict, rule_live, rule_rotated
from shipper.cursor import Cursor
from shipper.families import family_of
from shipper.identity import Match, identify
from shipper.notice import Notice, NoticeKind
from shipper.rotation import age
from shipper.sampling import Ask, Sample
from shipper.sighting import FileKey, Sighting
from shipper.tailer import Tailer

__all__ = ["Roster"]


class Roster:
    """The files that one follower knows; `chains` holds its tailers by family, oldest first."""

    def __init__(
        self, patterns: Sequence[str], known: Iterable[Cursor], new_id: Callable[[], str]
    ) -> None:
        self.known = {cursor.file: cursor for cursor in known}
        self.tailers: dict[FileKey, Tailer] = {}
        self.chains: dict[str, list[Tailer]] = {}
        self.lives = {c.path for c in self.known.values() if _is_shown(c.path, patterns)}
        self._new_id = new_id
        self._old: dict[FileKey, int] = {}
        self._sighted: dict[FileKey, Sighting] = {}
        self._live: dict[str, Sighting] = {}

    def sight(self, sightings: Iterable[Sighting], now: int) -> tuple[list[Ask], list[Notice]]:
        """Take note of a look; return which files must be glimpsed at before `settle`, and what there is to say."""
        self._sighted = self._each_once(sightings)
        self._live = {s.path: s for s in self._sighted.values() if s.is_live}
        self.lives |= {s.path for s in self._sighted.values() if s.wanted}
        notices = []
        for key, tailer in self.tailers.items():
            before = tailer.sighting.path
            if sighting := self._sighted.get(key):
                tailer.sighted(sighting, now)
                if sighting.path != before:
                    notices.append(Notice(NoticeKind.ROTATED, before, f"is now {sighting.path}"))
        self._old = {k: m for k, m in self._old.items() if self._is_old(k, m)}
        return self._asks(), notices

    def settle(self, samples: Mapping[FileKey, Sample], now: int) -> list[Notice]:
        """Decide what the files that were glimpsed at are, and follow those that are to be followed."""
        truncated = {
            key: self._remember(key)
            for key in list(self.tailers)
            if self.tailers[key].suspect and key in samples and not self._is_same(key, samples[key])
        }
        strangers = self._strangers(samples)
        notices = []
        for family in dict.fromkeys(s.sighting.family for s in strangers):
            chain = [s for s in strangers if s.sighting.family == family]
            notices += self._settle_family(family, chain, samples, now)
        notices += [
            _truncated(tailer, self._follower_of(tailer.file)) for tailer in truncated.values()
        ]
        self.order()
        return notices

    def leave(self, tailer: Tailer) -> None:
        """Stop following a file; its cursor is remembered, should it come back."""
        self._remember(tailer.sighting.key)
        self.order()

    def order(self) -> None:
        """Sort the chains, oldest first."""
        self.chains = {}
        for tailer in self.tailers.values():
            self.chains.setdefault(tailer.sighting.family, []).append(tailer)
        for chain in self.chains.values():
            chain.sort(key=lambda tailer: tailer.age)

    def unseen(self) -> list[Tailer]:
        """Return the followed files that the last look did not show."""
        return [tailer for key, tailer in self.tailers.items() if key not in self._sighted]

    def _each_once(self, sightings: Iterable[Sighting]) -> dict[FileKey, Sighting]:
        # hard links and symbolic links show one file at several paths; the one it was followed at stays
        chosen: dict[FileKey, Sighting] = {}
        for sighting in sorted(sightings, key=lambda s: (not s.is_live, not s.wanted, s.path)):
            tailer = self.tailers.get(sighting.key)
            if sighting.key not in chosen or (
                tailer is not None
                and tailer.sighting.path == sighting.path
                and chosen[sighting.key].is_live == sighting.is_live
            ):
                chosen[sighting.key] = sighting
        return chosen

    def _is_old(self, key: FileKey, modified: int) -> bool:
        sighting = self._sighted.get(key)
        return sighting is not None and not sighting.is_live and sighting.modified == modified

    def _asks(self) -> list[Ask]:
        fresh = [
            s for k, s in self._sighted.items() if k not in self.tailers and k not in self._old
        ]
        families = {sighting.family for sighting in fresh}
        wanted = dict.fromkeys(
            [
                *fresh,
                *(self._live[family] for family in families if family in self._live),
                *(t.sighting for k, t in self.tailers.items() if t.suspect and k in self._sighted),
            ]
        )
        if not wanted:
            return []
        by_family, by_inode = self._index()
        return [
            Ask(
                s,
                tuple(
                    {
                        c.file: c
                        for c in (*by_family.get(s.family, ()), *by_inode.get(s.key.inode, ()))
                    }.values()
                ),
            )
            for s in wanted
        ]

    def _index(self) -> tuple[dict[str, list[Cursor]], dict[int, list[Cursor]]]:
        by_family: dict[str, list[Cursor]] = {}
        by_inode: dict[int, list[Cursor]] = {}
        for tailer in self.tailers.values():
            by_family.setdefault(tailer.sighting.family, []).append(tailer.cursor)
        for cursor in self.known.values():
            by_family.setdefault(family_of(cursor.path, self.lives), []).append(cursor)
            by_inode.setdefault(cursor.identity.inode, []).append(cursor)
        return by_family, by_inode

    def _is_same(self, key: FileKey, sample: Sample) -> bool:
        tailer = self.tailers[key]
        stranger = _stranger(self._sighted[key], sample)
        tailer.suspect = stranger.judged(tailer.cursor) is not Match.SAME
        tailer.dirty = True
        return not tailer.suspect

    def _strangers(self, samples: Mapping[FileKey, Sample]) -> list[Stranger]:
        return [
            _stranger(self._sighted[key], sample)
            for key, sample in samples.items()
            if key not in self.tailers and key in self._sighted
        ]

    def _settle_family(
        self, family: str, strangers: list[Stranger], samples: Mapping[FileKey, Sample], now: int
    ) -> list[Notice]:
        by_family, _ = self._index()
        cursors = by_family.get(family, [])
        newest = max((cursor.seen for cursor in cursors), default=None)
        notices = []
        live = self._live_of(family, cursors, samples)
        for stranger in sorted(strangers, key=_order):
            candidates = [
                c for c in self.known.values() if c.identity.inode == stranger.sighting.key.inode
            ]
            if stranger.sighting.is_live:
                ruling = rule_live(stranger, candidates)
            else:
                ruling = rule_rotated(stranger, candidates, live, newest)
            notices += self._act(ruling, stranger, now)
        return notices

    def _live_of(
        self, family: str, cursors: Iterable[Cursor], samples: Mapping[FileKey, Sample]
    ) -> Live | None:
        sighting = self._live.get(family)
        sample = None if sighting is None else samples.get(sighting.key)
        if sighting is None or sample is None:
            return None
        kept = [c for c in cursors if c.identity.inode == sighting.key.inode]
        if not kept:
            return Live(None, sample.head, truncated=False)
        stranger = _stranger(sighting, sample)
        same = [c for c in kept if stranger.judged(c) is Match.SAME]
        cursor = max(same or kept, key=lambda c: c.seen)
        return Live(cursor, sample.head, truncated=not same)

    def _act(self, ruling: Ruling, stranger: Stranger, now: int) -> list[Notice]:
        sighting = stranger.sighting
        match ruling.verdict:
            case Verdict.CONTINUE | Verdict.INHERIT if ruling.cursor is not None:
                return self._go_on(ruling.cursor, stranger)
            case Verdict.BEGIN:
                label = sighting.path if sighting.wanted else sighting.family
                identity = identify(sighting.key.inode, b"", b"")
                cursor = Cursor(self._new_id(), label, 0, identity, now)
                self.tailers[sighting.key] = Tailer(cursor, sighting, b"", b"")
                return [Notice(NoticeKind.FOUND, sighting.path, "is followed from its beginning")]
            case Verdict.OLD:
                self._old[sighting.key] = sighting.modified
            case _:
                pass  # copies and empty siblings are looked at again
        return []

    def _go_on(self, cursor: Cursor, stranger: Stranger) -> list[Notice]:
        if self.known.pop(cursor.file, None) is None:
            return []  # another copy was first
        head = stranger.head[: cursor.identity.head_length]
        tail = stranger.tails.get(cursor.file, b"")
        sighting = stranger.sighting
        self.tailers[sighting.key] = Tailer(cursor, sighting, head, tail)
        return [Notice(NoticeKind.FOUND, sighting.path, f"goes on at byte {cursor.offset}")]

    def _remember(self, key: FileKey) -> Tailer:
        tailer = self.tailers.pop(key)
        self.known[tailer.file] = tailer.cursor
        return tailer

    def _follower_of(self, file: str) -> Tailer | None:
        return next((t for t in self.tailers.values() if t.file == file), None)


def _stranger(sighting: Sighting, sample: Sample) -> Stranger:
    return Stranger(replace(sighting, size=sample.size), sample.head, sample.tails)


def _order(stranger: Stranger) -> tuple[bool, tuple[int, int, str]]:
    sighting = stranger.sighting
    return not sighting.is_live, age(sighting.modified, sighting.path)


def _truncated(tailer: Tailer, copy: Tailer | None) -> Notice:
    path = tailer.sighting.path
    if copy is not None:
        text = f"was truncated; its rest is read from {copy.sighting.path}"
        return Notice(NoticeKind.TRUNCATED, path, text)
    lost = tailer.unread
    text = f"was truncated or written anew; {lost} bytes were seen in it and not read"
    return Notice(NoticeKind.TRUNCATED, path, text, lost)


def _is_shown(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, p) or fnmatchcase(path, p.replace("**/", "*")) for p in patterns)
