"""Which journals a folder has, by the headers of its files, and where each is read on."""

import math
import time
from collections.abc import Callable, Iterable, Mapping

from nats_logship.app.text import format_count
from nats_logship.wire.positions import Cursor
from shipper.sources.journal.checks import find_doubts
from shipper.sources.journal.headers import JournalFile, JournalFolder
from shipper.sources.journal.journal import Journal
from shipper.sources.journal.rules import Options
from shipper.sources.notices import Notice, NoticeKind

_SETTLED = 1.0  # seconds


class Journals:
    """The journals by name (seqnum_id), as of the last `check_headers`."""

    def __init__(
        self, options: Options, new_id: Callable[[], str], clock: Callable[[], int]
    ) -> None:
        self.options = options
        self.found: dict[str, Journal] = {}
        self.ended: set[str] = set()
        """File ids of journals of which nothing more will come."""
        self.notices: list[Notice] = []
        """What was not reported yet."""
        self.folder = JournalFolder(options.folder)
        self._new_id, self._clock = new_id, clock
        self._known: dict[str, Cursor] = {}
        self._missing: set[str] = set()  # names of known journals that had no file then
        self._reported: set[str] = set()
        self._has_checked = False

    @property
    def there(self) -> list[Journal]:
        """The journals that had files then."""
        return [one for one in self.found.values() if one.name not in self._missing]

    def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Read on from these cursors, the newest of each journal."""
        ordered = sorted(cursors.values(), key=lambda one: (not one.ended, one.seen, one.offset))
        self._known = {one.identity.head_hash: one for one in ordered}
        self.found = {}

    def check_headers(self) -> None:
        """Read the headers."""
        trouble, files = self.folder.trouble, self.folder.list_files()
        if not self.folder.trouble:
            self._reported.discard(trouble)
        if self.folder.trouble:
            self.report_once(NoticeKind.MISSING, self.folder.trouble)
            if not files:
                return
        if not self._has_checked:
            for text in find_doubts(self.options):
                self.report_once(NoticeKind.MISSING, text)
        by_name = _group(files)
        for name, found in by_name.items():
            self._update(name, tuple(found))
        if not self.folder.trouble:
            self._note_missing(by_name)
        self._has_checked = True

    def _update(self, name: str, files: tuple[JournalFile, ...]) -> None:
        journal = self.found.get(name)
        if journal is None:
            journal = self.found[name] = self._add(name, files)
        journal.files, journal.last_time = files, max(one.tail_time for one in files)
        self.ended.discard(journal.file)
        self._missing.discard(name)
        now = time.monotonic()
        journal.short_since = min(journal.short_since, now) if journal.is_short else math.inf
        # a file may be missing for a moment, while it is renamed
        may_be = journal.is_perhaps_set_back and not self.folder.trouble
        if journal.is_surely_set_back or (may_be and now - journal.short_since > _SETTLED):
            self.begin_again(journal)

    def _add(self, name: str, files: tuple[JournalFile, ...]) -> Journal:
        path, records = self.options.path, self.options.records
        if cursor := self._known.pop(name, None):
            mark = cursor.identity.tail_hash.encode()
            if cursor.path != path:
                text = f"journal {name} was followed as {cursor.path}; it is read on from entry"
                self.notices.append(Notice(NoticeKind.FOUND, path, f"{text} {cursor.offset}"))
            return Journal(name, cursor.file, path, cursor.offset, files, records, mark)
        start, end = self._find_start(files), max(one.tail for one in files) + 1
        text = f"journal {name} is read from entry {start} on, {format_count(end - start, 'entry')}"
        self.notices.append(Notice(NoticeKind.FOUND, path, text))
        return Journal(name, self._new_id(), path, start, files, records)

    def _find_start(self, files: tuple[JournalFile, ...]) -> int:
        first, end = min(one.head for one in files), max(one.tail for one in files) + 1
        if self._has_checked:  # it came after the start
            return first
        if self.options.from_end:
            return end
        if (age := self.options.ignore_older) is None:
            return first
        oldest = (self._clock() - age) // 1000
        return min((one.head for one in files if one.tail_time >= oldest), default=end)

    def _note_missing(self, names: Mapping[str, object]) -> None:
        """Note which journals have no file any more: what was not read of them is lost.

        A file that is renamed may be missing in one listing, so it is two of them that count.
        """
        known = {name for name, one in self._known.items() if one.path == self.options.path}
        known |= {one.name for one in self.found.values() if one.files}
        missing = known - names.keys()
        for name in missing & self._missing:
            if cursor := self._known.pop(name, None):
                self._report_unknown(cursor)
            else:
                journal = self.found[name]
                journal.known_end = max(one.tail for one in journal.files) + 1
                journal.files = ()
                self.ended.add(journal.file)
        self._missing = missing

    def _report_unknown(self, cursor: Cursor) -> None:
        self.ended.add(cursor.file)
        if not cursor.ended:
            name = cursor.identity.head_hash
            text = f"journal {name} is gone; it was read up to entry {cursor.offset}"
            self.notices.append(Notice(NoticeKind.UNREAD, self.options.path, text))

    def begin_again(self, journal: Journal) -> None:
        """Read a journal under another file id, but for entries that seem to be shipped.

        Its numbers were given again to other entries, such as after a virtual machine was reset.
        If no entry seemed to be new, all are shipped again: a duplicate is better than a loss.
        """
        is_first = journal.shipped is None
        self.ended.add(journal.file)
        successor = Journal(
            name=journal.name,
            file=self._new_id(),
            path=journal.path,
            position=min(one.head for one in journal.files),
            files=journal.files,
            records=journal.records,
            shipped=(journal.mark, b"") if is_first else None,
        )
        self.found[journal.name] = successor
        text = f"journal {journal.name} was set back; its entries that seem to be new are shipped"
        if not is_first:
            text = f"none of the entries of journal {journal.name} is surely new; all are shipped"
        self.notices.append(Notice(NoticeKind.TRUNCATED, journal.path, text))

    def report_once(self, kind: NoticeKind, text: str) -> None:
        """Report a trouble, unless it was reported before."""
        if text not in self._reported:
            self._reported.add(text)
            self.notices.append(Notice(kind, self.options.path, text))


def _group(files: Iterable[JournalFile]) -> dict[str, list[JournalFile]]:
    by_name: dict[str, list[JournalFile]] = {}
    for one in files:
        by_name.setdefault(one.journal, []).append(one)
    return by_name
