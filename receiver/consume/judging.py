"""Decide which of a message's lines are new; find gaps, repeats and losses. Touches no file.

A section is compared with how far its source file was received: it is written, dropped as a repeat,
or written behind a gap. The broker's compare-and-set keeps repeats and gaps out of the stream, but
shippers with `--no-ack` publish without it. A gap can also come from messages that nats-server
deleted (`max_age`, `discard = old`) before they were received. `replay` and `verify` decide by the
same rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

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
_LONGEST_PATH = 1024  # characters in an anomaly: any message may name a path of any length
_MAX_SEQUENCE = 2**64 - 1  # nats-server counts in 64 bits
_NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Write the lines of a section from byte `skip` on, and report the `anomaly`."""

    skip: int
    anomaly: Anomaly | None = None


_WHOLE = Judgement(0)


def judge(reached: int | None, section: Section, host: str, sequence: int) -> Judgement:
    """Compare a section with the position up to which its file was received.

    `reached` is None for a file that was never received: any start is right then, as a shipper may
    begin at a file's end. If in doubt, bytes are written: a duplicate is better than a loss.
    """
    span = section.span
    if reached is None or span.start == reached:
        return _WHOLE
    path = _shorten(section.path)
    found = Anomaly(AnomalyKind.REPEAT, host, path, span.file_id, span.start, reached, sequence, 0)
    found = replace(found, unit=section.unit)
    if span.start > reached:
        return Judgement(0, replace(found, kind=AnomalyKind.GAP, start=reached, end=span.start))
    if reached >= span.end:
        return Judgement(section.size, replace(found, end=span.end))
    if not section.is_divisible:
        return Judgement(0, replace(found, kind=AnomalyKind.DOUBT))
    return Judgement(reached - span.start, found)


def _shorten(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"


class Piece(NamedTuple):
    """Lines of one section as they go to a host's file; never empty.

    `file` is the source file's path, empty if it is not known. `stored_at` is in nanoseconds since
    the epoch. `file_id` is that of the span, empty for none, and `end` the span's end.
    `is_adjacent` says that nothing is missing between this piece and the one of its file before.
    """

    host: str
    file: str
    sequence: int
    stored_at: int
    payload: bytes
    file_id: str = ""
    is_adjacent: bool = True
    lines: int = 0
    end: int = 0

    def join(self, endings: Endings, output: str) -> bytes:
        """Return the bytes to append to an output."""
        source = self.host, self.file_id
        return endings.join(
            output, source, self.payload, end=self.end, is_adjacent=self.is_adjacent
        )


@dataclass(slots=True)
class Judge:
    """Judges a partition's messages in the order of their sequences, and collects `anomalies`.

    `ends` is kept up to date, and has three kinds of keys, with a time each:

    | key | value |
    |---|---|
    | (host, file id) | the position up to which a source file was received |
    | (host, "") | the sequence of the host's last message |
    | ("", "") | the sequence up to which messages of unknown hosts may have been received |

    Sections of files that nobody `wants`, by their path, are passed over.
    """

    ends: SpanEnds = field(default_factory=SpanEnds)
    wants: Callable[[str], bool] = lambda _: True
    anomalies: list[Anomaly] = field(default_factory=list)
    _gap_at: int = 0  # sequence of the last message that reported a gap
    _decompressor: ZstdDecompressor = field(default_factory=ZstdDecompressor)

    def take(
        self,
        subject: str,
        headers: Mapping[str, str] | None,
        data: bytes,
        sequence: int,
        stored_at: int,
    ) -> list[Piece]:
        """Return what a message adds to its host's files, in order; nothing for a repeat.

        Raises `MalformedMessage`, `InvalidHost`, `InvalidSubject`; nothing has changed then.
        """
        host, origin = parse_host(subject), decode_origin(headers)
        if origin is None:
            lines = self._decode_plain(headers, data) if self.wants("") else b""
            count = lines.count(_NEWLINE)
            return [Piece(host, "", sequence, stored_at, lines, lines=count)] if lines else []
        if origin.sections and not any(self.wants(one.path) for one in origin.sections):
            return []
        payload = decode_payload(headers, data, self._decompressor)
        # a host's clock may be wrong: use its time only if it is near the broker's
        is_near = -_DAY < origin.read_at - stored_at <= 0
        read_at = origin.read_at if is_near else stored_at
        pieces = []
        for section, part in split_sections(origin, payload):
            if self.wants(section.path):
                judgement = self._judge(host, section, sequence, read_at)
                anomaly = judgement.anomaly
                is_adjacent = anomaly is None or anomaly.kind is AnomalyKind.REPEAT
                if lines := part[judgement.skip :]:
                    count = lines.count(_NEWLINE) if judgement.skip else section.lines
                    pieces.append(
                        Piece(
                            host=host,
                            file=section.path,
                            sequence=sequence,
                            stored_at=stored_at,
                            payload=lines,
                            file_id=section.span.file_id,
                            is_adjacent=is_adjacent,
                            lines=count,
                            end=section.span.end,
                        )
                    )
        return pieces

    def _decode_plain(self, headers: Mapping[str, str] | None, data: bytes) -> bytes:
        """Return the lines of another client's message, whose source file is unknown."""
        lines = decode_payload(headers, data, self._decompressor)
        return lines if not lines or lines.endswith(_NEWLINE) else lines + _NEWLINE

    def _judge(self, host: str, section: Section, sequence: int, read_at: int) -> Judgement:
        key = (host, section.span.file_id)
        reached, since = self.ends[key]
        judgement = judge(reached if reached >= 0 else None, section, host, sequence)
        if anomaly := judgement.anomaly:
            self._keep(replace(anomaly, since=since, read_at=read_at))
        self.ends[key] = max(section.span.end, reached), read_at
        return judgement

    def check_predecessor(
        self, host: str, predecessor: int | None, sequence: int, stored_at: int
    ) -> None:
        """Find out by the predecessor's sequence whether messages of a host are missing.

        To be called once for every message, also for one in quarantine. If a message reports a gap,
        it does not report a loss too: the gap names the file and the bytes.
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
def parse_host(subject: str) -> str:
    """Return the host of a subject; raises `InvalidSubject`, `InvalidHost`."""
    return Subject.parse(subject).host


def read_expected_sequence(headers: Mapping[str, str] | None) -> int | None:
    """Return the sequence of the subject's message before this one, by the shipper's headers.

    The server has compared it for the shipper. It is 0 if the subject had no message, None if the
    headers do not have it, or a mirror has copied them from another site's stream.
    """
    if not headers or "Log-Agent" not in headers or "Nats-Stream-Source" in headers:
        return None
    expected = headers.get(EXPECTED_SEQUENCE, "")
    if not (expected.isascii() and expected.isdigit() and len(expected) <= 20):
        return None
    return sequence if (sequence := int(expected)) <= _MAX_SEQUENCE else None
