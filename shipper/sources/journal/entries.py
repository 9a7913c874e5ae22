"""Makes entries of what `journalctl` prints, in the export format and as JSON.

The export format is a text field `NAME=value` or a binary one (name, newline, 64 bits of length,
value) on each line, and an empty line behind an entry. One expression matches a whole entry without
binary fields, which nearly all are.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from shipper.sources.journal.rules import EntryRules

_CURSOR = rb"s=[0-9a-f]+;i=([0-9a-f]+);(b=[0-9a-f]+;m=[0-9a-f]+;t=[0-9a-f]+);x=[0-9a-f]+"
_TEXT_ENTRY = re.compile(rb"__CURSOR=" + _CURSOR + rb"\n((?:(?!__CURSOR=)[^=\n]+=[^\n]*\n)*)\n")
_FIELD = re.compile(rb"([^=\n]+)=([^\n]*)\n")
_ANY_CURSOR = re.compile(_CURSOR)
_JSON_LINE = re.compile(rb'[^\n]*?"__CURSOR" ?: ?"' + _CURSOR + rb'"[^\n]*\n')
_LENGTH = 8  # bytes
Fields = Mapping[bytes, bytes]


class JournalEntry(NamedTuple):
    """An entry: its number, its `mark`, and its lines.

    `mark` (boot id, monotonic and real time) differs between entries of the same number. `lines` is
    None for an entry that is left out, and empty for one that has no message to show.
    """

    number: int
    mark: bytes
    lines: bytes | None


class EntryParser:
    """Parses a stream in pieces of any size; `feed` returns the entries that are complete."""

    head = b""
    """What an entry begins with."""

    def __init__(self, rules: EntryRules) -> None:
        self._rules = rules
        self._rest = b""
        self.unfinished = 0
        """How many bytes were fed since the last entry that is complete."""

    def feed(self, data: bytes) -> list[JournalEntry]:
        """Return the entries that end in `data`."""
        self.unfinished += len(data)
        data = self._rest + data if self._rest else data
        entries: list[JournalEntry] = []
        at = self._parse(data, entries.append)
        self._rest = data[at:]
        if entries:
            self.unfinished = len(self._rest)
        return entries

    @property
    def holds_entry(self) -> bool:
        """Whether what is held is the beginning of an entry."""
        return self._rest.startswith(self.head)

    def cut(self, number: int) -> JournalEntry:
        """Return the entry that is held, as far as it was read, and forget it.

        It is `number` if that was not read yet.
        """
        data, self._rest = self._rest, b""
        found = _ANY_CURSOR.search(data)
        number, mark = (int(found[1], 16), found[2]) if found else (number, b"")
        return JournalEntry(number, mark, self._make_lines(data))

    def _parse(self, data: bytes, add: Callable[[JournalEntry], None]) -> int:
        raise NotImplementedError

    def _make_lines(self, data: bytes) -> bytes:
        """Return the lines of an entry that ends too early."""
        raise NotImplementedError


class JsonParser(EntryParser):
    """Parses `--output=json`, and gives its lines as they are."""

    head = b"{"

    def _parse(self, data: bytes, add: Callable[[JournalEntry], None]) -> int:
        at, select = 0, None if self._rules.selects_all else self._rules.select_json
        while found := _JSON_LINE.match(data, at):
            at = found.end()
            lines = found[0]
            add(
                JournalEntry(
                    int(found[1], 16), found[2], None if select and not select(lines) else lines
                )
            )
        return at

    def _make_lines(self, data: bytes) -> bytes:
        return data + b"\n"


class ExportParser(EntryParser):
    """Parses `--output=export`; `format_entry` makes lines of the fields."""

    head = b"__CURSOR="

    def __init__(self, rules: EntryRules, format_entry: Callable[[Fields], bytes]) -> None:
        super().__init__(rules)
        self._format = format_entry

    def _parse(self, data: bytes, add: Callable[[JournalEntry], None]) -> int:
        at, form = 0, self._format
        select = None if self._rules.selects_all else self._rules.select
        match, find_fields = _TEXT_ENTRY.match, _FIELD.findall
        while True:
            while found := match(data, at):
                at = found.end()
                fields = dict(find_fields(found[3]))
                lines = None if select and not select(fields) else form(fields)
                add(JournalEntry(int(found[1], 16), found[2], lines))
            if (parsed := _parse_fields(data, at)) is None:
                return at
            fields, at = parsed
            if cursor := _ANY_CURSOR.fullmatch(fields.get(b"__CURSOR", b"")):
                lines = None if select and not select(fields) else form(fields)
                add(JournalEntry(int(cursor[1], 16), cursor[2], lines))

    def _make_lines(self, data: bytes) -> bytes:
        return self._format({name: value for name, value, _ in _walk(data + b"\n", 0)})


def _parse_fields(data: bytes, at: int) -> tuple[dict[bytes, bytes], int] | None:
    """Return the fields of an entry, and where the next one begins; None if it is not complete.

    There are no fields if `journalctl` could not print the entry to its end: another one follows
    without an empty line.
    """
    fields: dict[bytes, bytes] = {}
    for name, value, end in _walk(data, at):
        if not name:
            return fields, end
        if name == b"__CURSOR" and fields:
            return {}, at
        if end > len(data):
            break
        fields[name], at = value, end
    return None


def _walk(data: bytes, at: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the name of each field, its value, and where the next one begins.

    That is behind the end of `data` for a field that is not complete. The name is empty at the end
    of an entry.
    """
    while (newline := data.find(b"\n", at)) >= 0:
        name, separator, value = data[at:newline].partition(b"=")
        at = newline + 1
        if name and not separator:
            size = int.from_bytes(data[at : at + _LENGTH], "little")
            start, at = at + _LENGTH, at + _LENGTH + size + 1
            value = data[start : at - 1]
        yield name, value, at
