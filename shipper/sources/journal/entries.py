"""Makes entries of what `journalctl --output=export` prints.

The export format is a text field `NAME=value` or a binary one (name, newline, 64 bits of length,
value) on each line, and an empty line behind an entry. Nearly all entries have no binary field, and
so no NUL: such ones are found together, and only those fields of them that are needed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from shipper.sources.journal.rules import NAMES, EntryRules

_HEAD = b"__CURSOR="
_END = b"\n\n"
_CUT_END = b"\n"  # of an entry that journalctl could not print to its end
_CURSOR = re.compile(
    rb"s=[^;]*+;i=([0-9a-f]{1,16}+);(b=[^;]*+;m=[^;]*+;t=[0-9a-f]{1,16}+);x=[0-9a-f]+"
)
_LENGTH = 8  # bytes
Fields = Mapping[bytes, bytes]
Pairs = Sequence[tuple[bytes, bytes]]
"""Fields in the order of the entry; a name may come again."""


class Form(Protocol):
    """How the lines of an entry are made, with their newlines.

    `names` are the fields that `format` needs beside the text; empty if none. A text is what is
    printed behind `__CURSOR=`.
    """

    names: Sequence[str]

    def format(self, fields: Fields, text: bytes) -> bytes:
        """Return the lines of an entry without binary fields, which is printed as `text`."""

    def format_pairs(self, pairs: Pairs) -> bytes:
        """Return the lines of an entry with these fields."""


class JournalEntry(NamedTuple):
    """An entry: its number, its `mark`, and its lines.

    `mark` (boot id, monotonic and real time) differs between entries of the same number. `lines` is
    None for an entry that is left out, and empty for one that has no message to show.
    """

    number: int
    mark: bytes
    lines: bytes | None


_make = partial(tuple.__new__, JournalEntry)  # in half the time


class EntryParser:
    """Parses a stream in pieces of any size; `feed` returns the entries that are complete."""

    def __init__(self, form: Form, rules: EntryRules) -> None:
        self._form, self._select = form, None if rules.selects_all else rules.select
        names = [*form.names, *(NAMES if self._select else ())]
        self._find = re.compile(rb"\n(%b)=([^\n]*)" % "|".join(names).encode()).findall
        self._needs_fields = bool(names)
        self._rest = b""
        self.unfinished = 0
        """How many bytes were fed since the last entry that is complete."""

    def feed(self, data: bytes) -> list[JournalEntry]:
        """Return the entries that end in `data`."""
        self.unfinished += len(data)
        data, at = self._rest + data if self._rest else data, 0
        entries: list[JournalEntry] = []
        while True:
            binary = data.find(b"\0", at)
            end = _find_end(data, at, binary if binary >= 0 else len(data))
            if end > at:
                texts = data[at:end].split(_END + _HEAD)
                texts[0] = texts[0].removeprefix(_HEAD)
                if data.count(_CUT_END + _HEAD, at, end) >= len(texts):
                    texts = [text.rpartition(_CUT_END + _HEAD)[2] for text in texts]
                entries += filter(None, map(self._parse_text, texts))
                at = end + 2
            if binary < 0 or (parsed := _parse_fields(data, at)) is None:
                break
            pairs, at = parsed
            entries += filter(None, [self._parse_pairs(pairs)])
        self._rest = data[at:]
        if entries:
            self.unfinished = len(self._rest)
        return entries

    def _parse_text(self, text: bytes) -> JournalEntry | None:
        if (cursor := _CURSOR.match(text)) is None:
            return None
        fields = dict(self._find(text)) if self._needs_fields else {}
        is_left_out = self._select is not None and not self._select(fields)
        lines = None if is_left_out else self._form.format(fields, text)
        return _make((int(cursor[1], 16), cursor[2], lines))

    def _parse_pairs(self, pairs: Pairs) -> JournalEntry | None:
        fields = dict(pairs)
        if (cursor := _CURSOR.fullmatch(fields.get(b"__CURSOR", b""))) is None:
            return None
        is_left_out = self._select is not None and not self._select(fields)
        lines = None if is_left_out else self._form.format_pairs(pairs)
        return JournalEntry(int(cursor[1], 16), cursor[2], lines)

    @property
    def holds_entry(self) -> bool:
        """Whether what is held is the beginning of an entry."""
        return self._rest.startswith(_HEAD)

    def cut(self, number: int) -> JournalEntry:
        """Return the entry that is held, as far as it was read, and forget it.

        It is `number` if that was not read yet.
        """
        data, self._rest = self._rest, b""
        found = _CURSOR.search(data)
        number, mark = (int(found[1], 16), found[2]) if found else (number, b"")
        pairs = [(name, value) for name, value, _ in _walk(data + b"\n", 0)]
        return JournalEntry(number, mark, self._form.format_pairs(pairs))


def _find_end(data: bytes, at: int, until: int) -> int:
    """Return where the last entry in `[at, until)` ends, which has no NUL; -1 if none does."""
    end = data.rfind(b"\n\n", at, until)
    while end > at and not _ends_text(data, at, end):
        end = data.rfind(b"\n\n", at, end + 1)
    return end


def _ends_text(data: bytes, at: int, end: int) -> bool:
    r"""Whether a text field ends there.

    The name of a binary one, or its length, may end there instead: `NAME\n\n` with a length that
    begins with 10, `NAME\n=\n\n` with one of 657,981 bytes.
    """
    last = data.rfind(b"\n", at, end)
    before = data.rfind(b"\n", at, max(at, last))
    return b"=" in data[last + 1 : end] and b"=" in data[before + 1 : last]


def _parse_fields(data: bytes, at: int) -> tuple[Pairs, int] | None:
    """Return the fields of an entry, and where the next one begins; None if it is not complete.

    There are no fields if `journalctl` could not print the entry to its end: another one follows
    without an empty line.
    """
    pairs = list[tuple[bytes, bytes]]()
    for name, value, end in _walk(data, at):
        if not name:
            return pairs, end
        if name == b"__CURSOR" and pairs:
            return [], at
        if end > len(data):
            break
        pairs.append((name, value))
        at = end
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
