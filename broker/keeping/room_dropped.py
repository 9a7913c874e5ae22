"""What went although no receiver had it, by name: host, sequences, times, files and lines. Values only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.keeping.room_plan import Seen, by_subject
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["Dropped", "FileRange", "dropped", "iso", "words"]

_FILES = 100  # that are named of one range


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a source file, `[start, end)`, that went with messages; between them others may have been received."""

    file: str
    file_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Messages of one host that go, all that it had in the stream's sequences `[first, until)`.

    `size` is in bytes as the stream counts them, times are of storage, in nanoseconds since the epoch. `lines` counts
    those of shippers; what a plain client sent says nothing of its own.
    """

    subject: str
    first: int
    until: int
    messages: int
    size: int
    lines: int
    oldest: int
    newest: int
    files: tuple[FileRange, ...]

    @property
    def host(self) -> str:
        """The host, or the whole subject where it names none."""
        return _parsed(self.subject)[0]

    @property
    def partition(self) -> int | None:
        """The partition; None where the subject names none."""
        return _parsed(self.subject)[1]

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values; the keys stay."""
        return {
            "host": self.host,
            "partition": self.partition,
            "subject": self.subject,
            "first": self.first,
            "until": self.until,
            "messages": self.messages,
            "lines": self.lines,
            "bytes": self.size,
            "oldest": iso(self.oldest),
            "newest": iso(self.newest),
            "files": [
                {"file": one.file, "file_id": one.file_id, "start": one.start, "end": one.end}
                for one in self.files
            ],
        }


def _parsed(subject: str) -> tuple[str, int | None]:
    try:
        found = Subject.parse(subject)
    except (InvalidSubject, InvalidHost):
        return subject, None
    return found.host, found.partition


def dropped(chosen: Iterable[Seen]) -> list[Dropped]:
    """Return the ranges of messages that go, one of each subject: none that stays may be between them."""
    found = map(_range, by_subject(chosen).values())
    return sorted(found, key=lambda one: one.first)


def _range(run: Sequence[Seen]) -> Dropped:
    return Dropped(
        run[0].subject,
        run[0].sequence,
        run[-1].sequence + 1,
        len(run),
        sum(seen.size for seen in run),
        sum(seen.origin.lines for seen in run if seen.origin),
        min(seen.stored_at for seen in run),
        max(seen.stored_at for seen in run),
        _files(run),
    )


def _files(run: Sequence[Seen]) -> tuple[FileRange, ...]:
    found: dict[str, FileRange] = {}
    for section in (one for seen in run if seen.origin for one in seen.origin.sections):
        span = section.span
        known = found.get(span.file)
        start = span.start if known is None else min(known.start, span.start)
        end = span.end if known is None else max(known.end, span.end)
        found[span.file] = FileRange(section.path, span.file, start, end)
    return tuple(found.values())[:_FILES]


def iso(moment: int) -> str:
    """Write a moment, in nanoseconds since the epoch, as RFC 3339 to the millisecond."""
    text = datetime.fromtimestamp(moment / 1e9, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def words(one: Dropped) -> str:
    """Return what a person is told of a range."""
    where = f"partition {one.partition}, " if one.partition is not None else ""
    lines = f"{one.lines} lines in " if one.lines else ""
    return (
        f"{one.host} ({where}sequences {one.first} to {one.until - 1}, stored {iso(one.oldest)} to {iso(one.newest)}): "
        f"{lines}{one.messages} messages"
    )
