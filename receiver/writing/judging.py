"""What of a message's lines goes on: the same for a receiver and for who reads the stream again.

Decides by what a book knows of each source file; never touches a file.
"""

from collections import Counter
from dataclasses import replace
from typing import Protocol

from broker.block import Origin
from receiver.writing.spans import Finding, Kind, check, judge

__all__ = ["Book", "Judge"]

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
        """Return when the block of that span was read, 0 where that is not known."""

    def note(self, host: str, file: str, end: int, read_at: int) -> None:
        """Remember a span."""


class Judge:
    """Judges a partition's messages in the order of their sequences, and keeps what was found.

    `found` is how many blocks did not follow their predecessor. Repeats are one finding as long as they follow on each other:
    were everything sent again, there would be one for each message else. So are those of each kind beyond the most of a host,
    which may say of each of its messages whatever it likes.
    """

    def __init__(self, book: Book, most_of_host: int = _MOST_OF_HOST) -> None:
        """Go by a book, which is kept up to date."""
        self._book = book
        self._most_of_host = most_of_host
        self._counts = Counter[str]()  # of findings, by host
        self._sums: dict[tuple[str, Kind], int] = {}  # where the one of all further ones is
        self._last: Finding | None = None
        self._latest: dict[tuple[str, str], int] = {}  # by source file: where its last finding is
        self.findings: list[Finding] = []
        self.found = 0

    def lines(
        self, host: str, origin: Origin | None, payload: bytes, sequence: int, stored_at: int
    ) -> bytes:
        """Return what a message adds to its host's file, empty for nothing; the payload itself where that is all of it.

        Raises `MalformedBlock` for headers that cannot be true.
        """
        if origin is None:
            return payload + b"\n" if payload and not payload.endswith(b"\n") else payload
        span = origin.span
        if span is None:
            return payload
        check(origin, len(payload))
        book = self._book
        reached = book.reached(host, span.file)
        judgement = judge(reached, origin, host, sequence, len(payload))
        # A host's clock may be anywhere; times that others go by are near the broker's.
        is_plausible = -_DAY < origin.read_at - stored_at <= 0
        read_at = origin.read_at if is_plausible else stored_at
        if judgement.finding:
            since = book.read_at(host, span.file)
            self._keep(replace(judgement.finding, since=since, read_at=read_at))
        book.note(host, span.file, max(span.end, reached or 0), read_at)
        return payload[judgement.skip :] if judgement.skip else payload

    def follow(self, host: str, predecessor: int | None, sequence: int, stored_at: int) -> None:
        """Find out whether messages of a host are missing before this one, by the sequence of its predecessor.

        To be called once for every message, whatever becomes of it. A message that shows a gap tells its own loss.
        """
        book = self._book
        last = book.reached(host, "")
        known = book.reached("", "") if last is None else last
        is_missing = predecessor is not None and known is not None and predecessor > known
        if is_missing and not self._has_gap(sequence):
            since = book.read_at(host, "")
            loss = Finding(Kind.LOSS, host, "", "", 0, 0, sequence, stored_at, since)
            self._keep(replace(loss, after=last or 0))
        book.note(host, "", sequence, stored_at)

    def _has_gap(self, sequence: int) -> bool:
        last = self._last
        return last is not None and last.sequence == sequence and last.kind is Kind.GAP

    def _keep(self, finding: Finding) -> None:
        self.found += 1
        self._last = finding
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

    def follows(self, sequence: int) -> bool:
        """Say whether the lines of the message judged last, of this sequence, follow on those before of their file."""
        return self._last is None or not self._last.breaks_at(sequence)
