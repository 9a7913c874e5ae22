"""What a receiver would have written of messages read again: the same judgement of spans, from a clean beginning.

Decides only; what is to be set aside is said by an exception, as it is for a receiver.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.block import decode_origin, decode_payload
from broker.subjects import Subject
from receiver.writing.spans import Finding, check, judge

__all__ = ["Piece", "Rebuilder"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines as they go to a host's file: whole ones, of one source file, or of none that is known (`file` is empty).

    `stored_at` is in nanoseconds since the epoch. `file_id` is that of its span, empty for none; `follows` says that
    nothing is missing between it and the piece of its file before.
    """

    host: str
    file: str
    sequence: int
    stored_at: int
    payload: bytes
    file_id: str = ""
    follows: bool = True


class Rebuilder:
    """The judgement of a partition's messages, in the order of their sequences; remembers how far each file came."""

    def __init__(self) -> None:
        """Know no file yet, so that each may begin anywhere."""
        self._reached: dict[tuple[str, str], int] = {}
        self.findings: list[Finding] = []

    def take(
        self,
        subject: str,
        headers: Mapping[str, str],
        data: bytes,
        sequence: int,
        stored_at: int,
    ) -> Piece | None:
        """Return what a message adds to its host's file, None for nothing (a claim, a repeat).

        Raises `MalformedBlock`, `InvalidHost` or `InvalidSubject` for what a receiver sets aside.
        """
        host = Subject.parse(subject).host
        origin = decode_origin(headers)
        if origin is not None and origin.is_claim:
            return None
        payload = decode_payload(headers, data)
        follows = True
        if origin is None:
            payload = payload if payload.endswith(b"\n") else payload + b"\n"
        elif origin.span is not None:
            check(origin, len(payload))
            key = (host, origin.span.file)
            reached = self._reached.get(key)
            judgement = judge(reached, origin, host, sequence, len(payload))
            if judgement.finding:
                self.findings.append(judgement.finding)
                follows = not judgement.finding.breaks_at(sequence)
            self._reached[key] = max(origin.span.end, reached or 0)
            payload = payload[judgement.skip :] if judgement.skip else payload
        if not payload:
            return None
        file, span = (origin.file, origin.span) if origin else ("", None)
        file_id = span.file if span else ""
        return Piece(host, file, sequence, stored_at, payload, file_id, follows)
