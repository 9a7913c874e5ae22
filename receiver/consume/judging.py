"""What of a message's lines goes on: the same for a receiver and for who reads the stream again.

Decides by what a book knows of each source file; never touches a file.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from broker.wire.message import Origin, Section, split
from receiver.consume.spans import Finding, Judgement, Kind, judge

__all__ = ["Book", "Judge", "Lines"]

_DAY = 24 * 3600 * 1_000_000_000  # nanoseconds
_MOST_OF_HOST = 1_000  # findings: the stream may have lost lines of each file of a host, and few have more files


class Book(Protocol):
    """How far the source files of a partition have come.

    The file `""` of a host stands for its messages: the end is the sequence of the last one. That of the host `""` is the
    sequence up to which messages of hosts that are not known may have been received.
    """

    def reached(self, host: str, file: str) -> int | None:
        """Return the end of a file's last span, None for a file that is not known."""

    def read_at(self, host: str, file: str) -> int:
        """Return when that span was read, 0 where that is not known."""

    def note(self, host: str, file: str, end: int, read_at: int) -> None:
        """Remember a span."""


@dataclass(frozen=True, slots=True)
class Lines:
    """What one section of a message adds to its host's file, never nothing; `section` is None where nobody says of which file.

    `follows` says that nothing is missing between it and the section of its file before.
    """

    payload: bytes
    section: Section | None = None
    follows: bool = True

    @property
    def file(self) -> str:
        """The path of the source file, empty where it is not known."""
        return self.section.path if self.section else ""

    @property
    def file_id(self) -> str:
        """The id of the source file, empty where it is not known."""
        return self.section.span.file if self.section else ""

    @property
    def count(self) -> int:
        """How many lines these are: of a whole section its shipper has counted them."""
        is_whole = self.section is not None and self.section.size == len(self.payload)
        return self.section.lines if self.section and is_whole else self.payload.count(b"\n")


def _all(_: str) -> bool:
    return True


class Judge:
    """Judges a partition's messages in the order of their sequences, section by section, and keeps what was found.

    `found` is how many sections did not follow their predecessor. Repeats are one finding as long as they follow on each other:
    were everything sent again, there would be one for each message else. So are those of each kind beyond the most of a host,
    which may say of each of its messages whatever it likes.
    """

    def __init__(
        self, book: Book, wants: Callable[[str], bool] = _all, most_of_host: int = _MOST_OF_HOST
    ) -> None:
        """Go by a book, which is kept up to date; files whose path nobody `wants` are passed over."""
        self._book = book
        self._wants = wants
        self._most_of_host = most_of_host
        self._counts = Counter[str]()  # of findings, by host
        self._sums: dict[tuple[str, Kind], int] = {}  # where the one of all further ones is
        self._latest: dict[tuple[str, str], int] = {}  # by source file: where its last finding is
        self._gap_at = 0  # sequence of the last message that showed a gap
        self.findings: list[Finding] = []
        self.found = 0

    def lines(
        self, host: str, origin: Origin | None, payload: bytes, sequence: int, stored_at: int
    ) -> list[Lines]:
        """Return what the sections of a message add to its host's files, in order; the payload itself where that is all of it.

        Raises `MalformedMessage` for sections that do not make up the payload, before any of them is remembered.
        """
        if origin is None:
            return self._unknown(payload)
        # A host's clock may be anywhere; times that others go by are near the broker's.
        is_plausible = -_DAY < origin.read_at - stored_at <= 0
        read_at = origin.read_at if is_plausible else stored_at
        found = []
        for section, part in split(origin, payload):
            if self._wants(section.path):
                judgement = self._judged(host, section, sequence, read_at)
                if lines := part[judgement.skip :]:
                    found.append(Lines(lines, section, judgement.follows))
        return found

    def _unknown(self, payload: bytes) -> list[Lines]:
        if not (payload and self._wants("")):
            return []
        return [Lines(payload if payload.endswith(b"\n") else payload + b"\n")]

    def _judged(self, host: str, section: Section, sequence: int, read_at: int) -> Judgement:
        book, span = self._book, section.span
        reached = book.reached(host, span.file)
        judgement = judge(reached, section, host, sequence)
        if finding := judgement.finding:
            self._keep(replace(finding, since=book.read_at(host, span.file), read_at=read_at))
        book.note(host, span.file, max(span.end, reached or 0), read_at)
        return judgement

    def follow(self, host: str, predecessor: int | None, sequence: int, stored_at: int) -> None:
        """Find out whether messages of a host are missing before this one, by the sequence of its predecessor.

        To be called once for every message, whatever becomes of it. A message that shows a gap tells its own loss.
        """
        book = self._book
        last = book.reached(host, "")
        known = book.reached("", "") if last is None else last
        is_missing = predecessor is not None and known is not None and predecessor > known
        if is_missing and self._gap_at != sequence:
            since = book.read_at(host, "")
            loss = Finding(Kind.LOSS, host, "", "", 0, 0, sequence, stored_at, since)
            self._keep(replace(loss, after=last or 0))
        book.note(host, "", sequence, stored_at)

    def _keep(self, finding: Finding) -> None:
        self.found += 1
        if finding.kind is Kind.GAP:
            self._gap_at = finding.sequence
        key = (finding.host, finding.file_id)
        if (place := self._latest.get(key)) is not None and (
            whole := self.findings[place].then(finding)
        ):
            self.findings[place] = whole
            return
        if self._counts[finding.host] >= self._most_of_host:
            self._keep_in_sum(finding)
            return
        self._counts[finding.host] += 1
        self._latest[key] = len(self.findings)
        self.findings.append(finding)

    def _keep_in_sum(self, finding: Finding) -> None:
        place = self._sums.setdefault((finding.host, finding.kind), len(self.findings))
        if place < len(self.findings):
            self.findings[place] = self.findings[place].plus(finding)
        else:
            self.findings.append(finding)
