"""What of a message's lines goes into files: the same for a receiver and for who reads the stream again.

A section is judged by how far its source file was received: written, left out, or written behind a gap. The stream cannot
hold a repeat within its day (compare-and-set); this covers what is older, and what retention removed before it was received.
Decides only; never touches a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from zstandard import ZstdDecompressor

from nats_logship.app.timestamps import SECOND
from nats_logship.wire.endings import Endings
from nats_logship.wire.message import (
    EXPECTED_SEQUENCE,
    Section,
    decode_origin,
    decode_payload,
    split_sections,
)
from nats_logship.wire.subjects import Subject
from receiver.storage.anomalies import Anomaly, AnomalyKind, SpanEnds

_DAY = 24 * 3600 * SECOND  # nanoseconds
_LONGEST = 1024  # characters of a path in a anomaly: hardly a file has one that long, but any message may name it
_NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do with a section: write its lines from byte `skip` on (all skipped: nothing), and tell `anomaly`."""

    skip: int
    anomaly: Anomaly | None = None


def judge(reached: int | None, section: Section, host: str, sequence: int) -> Judgement:
    """Judge a section against the end of what its file's earlier sections brought.

    `reached` is None for a file never received: any start is accepted then, as the shipper may begin at its end. What
    cannot be told apart is written rather than lost.
    """
    span = section.span
    if reached is None or span.start == reached:
        return Judgement(0)
    path = section.path if len(section.path) <= _LONGEST else f"{section.path[:_LONGEST]}…"
    found = Anomaly(AnomalyKind.REPEAT, host, path, span.file, span.start, reached, sequence, 0)
    if span.start > reached:
        return Judgement(0, replace(found, kind=AnomalyKind.GAP, start=reached, end=span.start))
    if reached >= span.end:
        return Judgement(section.size, replace(found, end=span.end))
    if section.filtered:
        return Judgement(0, replace(found, kind=AnomalyKind.DOUBT))
    return Judgement(reached - span.start, found)


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines as they go to a host's file, never nothing: of one source file, or of none that is known (`file` is empty).

    `stored_at` is in nanoseconds since the epoch. `file_id` is that of its span, empty for none, and `end` the span's end;
    `follows` says that nothing is missing between it and the piece of its file before. A message has a piece for each of
    its sections.
    """

    host: str
    file: str
    sequence: int
    stored_at: int
    payload: bytes
    file_id: str = ""
    follows: bool = True
    lines: int = 0
    end: int = 0

    def joined(self, endings: Endings, output: str) -> bytes:
        """Return the bytes to append to an output for it."""
        source = self.host, self.file_id
        return endings.join(output, source, self.payload, end=self.end, follows=self.follows)


@dataclass(slots=True)
class Judge:
    """Judges a partition's messages in the order of their sequences, section by section, and keeps what was found.

    It goes by `ends`, which are kept up to date; files whose path nobody `wants` are passed over.
    """

    ends: SpanEnds = field(default_factory=SpanEnds)
    wants: Callable[[str], bool] = lambda _: True
    anomalies: list[Anomaly] = field(default_factory=list)
    _gap_at: int = 0  # sequence of the last message that showed a gap
    _decompressor: ZstdDecompressor = field(default_factory=ZstdDecompressor)

    def take(
        self,
        subject: str,
        headers: Mapping[str, str] | None,
        data: bytes,
        sequence: int,
        stored_at: int,
    ) -> list[Piece]:
        """Return what a message adds to its host's files, in order: nothing of a claim or a repeat.

        Raises `MalformedMessage`, `InvalidHost` or `InvalidSubject` for what is to be set aside; nothing of it is remembered.
        """
        host, origin = host_of(subject), decode_origin(headers)
        if origin is None:  # whole lines of no file that is known
            wanted = self.wants("")
            lines = decode_payload(headers, data, self._decompressor) if wanted else b""
            lines += b"" if not lines or lines.endswith(_NEWLINE) else _NEWLINE
            count = lines.count(_NEWLINE)
            return [Piece(host, "", sequence, stored_at, lines, lines=count)] if lines else []
        if origin.sections and not any(self.wants(one.path) for one in origin.sections):
            return []
        payload = decode_payload(headers, data, self._decompressor)
        # a host's clock may be anywhere; times that others go by are near the broker's
        is_near = -_DAY < origin.read_at - stored_at <= 0
        read_at = origin.read_at if is_near else stored_at
        found = []
        for section, part in split_sections(origin, payload):
            if self.wants(section.path):
                judgement = self._judged(host, section, sequence, read_at)
                anomaly = judgement.anomaly
                follows = anomaly is None or anomaly.kind is AnomalyKind.REPEAT
                if lines := part[judgement.skip :]:
                    count = lines.count(_NEWLINE) if judgement.skip else section.lines
                    about = (host, section.path, sequence, stored_at)
                    span = section.span
                    found.append(Piece(*about, lines, span.file, follows, count, span.end))
        return found

    def _judged(self, host: str, section: Section, sequence: int, read_at: int) -> Judgement:
        key = (host, section.span.file)
        reached, since = self.ends[key]
        judgement = judge(reached if reached >= 0 else None, section, host, sequence)
        if anomaly := judgement.anomaly:
            self._keep(replace(anomaly, since=since, read_at=read_at))
        self.ends[key] = max(section.span.end, reached), read_at
        return judgement

    def follow(self, host: str, predecessor: int | None, sequence: int, stored_at: int) -> None:
        """Find out whether messages of a host are missing before this one, by the sequence of its predecessor.

        To be called once for every message, whatever becomes of it. A message that shows a gap tells its own loss.
        """
        last, since = self.ends[host, ""]
        known = last if last >= 0 else self.ends["", ""][0]
        if predecessor is not None and 0 <= known < predecessor and self._gap_at != sequence:
            loss = Anomaly(AnomalyKind.LOSS, host, "", "", 0, 0, sequence, stored_at, since)
            self._keep(replace(loss, after=max(last, 0)))
        self.ends[host, ""] = sequence, stored_at

    def _keep(self, anomaly: Anomaly) -> None:
        if anomaly.kind is AnomalyKind.GAP:
            self._gap_at = anomaly.sequence
        self.anomalies.append(anomaly)


@lru_cache(16_384)
def host_of(subject: str) -> str:
    """Return the host of a subject; raises `InvalidSubject`, `InvalidHost`."""
    return Subject.parse(subject).host


def expected_sequence(headers: Mapping[str, str] | None) -> int | None:
    """Return the sequence of the message before on the same subject, as the server checked it for a shipper.

    0 where the subject held none; None where the headers do not say it. A shipper has the server compare it
    (`Nats-Expected-Last-Subject-Sequence`, which is stored with the message). Sequences of another site's stream say
    nothing about this one.
    """
    if not headers or "Log-Agent" not in headers or "Nats-Stream-Source" in headers:
        return None
    expected = headers.get(EXPECTED_SEQUENCE, "")
    is_number = expected.isascii() and expected.isdigit() and len(expected) <= 20
    return int(expected) if is_number else None
