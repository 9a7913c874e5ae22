"""What a receiver would have written of messages read again: the same judgement of spans, from a clean beginning.

Decides only; what is to be set aside is said by an exception, as it is for a receiver.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.block import decode_origin, decode_payload
from broker.subjects import Subject
from receiver.writing.judging import Judge
from receiver.writing.received import Received

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
        self._judge = Judge(_Memory())

    @property
    def found(self) -> int:
        """How many gaps and repeats of files were met."""
        return self._judge.found

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
        whole = decode_payload(headers, data)
        payload = self._judge.lines(host, origin, whole, sequence, stored_at)
        if not payload:
            return None
        file, span = (origin.file, origin.span) if origin else ("", None)
        file_id = span.file if span else ""
        follows = self._judge.follows(sequence)
        return Piece(host, file, sequence, stored_at, payload, file_id, follows)


class _Memory:
    """A book that begins and ends with whoever reads."""

    def __init__(self) -> None:
        self._files = Received()

    def reached(self, host: str, file: str) -> int | None:
        known = self._files.get(host, file)
        return known[0] if known else None

    def read_at(self, host: str, file: str) -> int:
        known = self._files.get(host, file)
        return known[1] if known else 0

    def note(self, host: str, file: str, end: int, read_at: int) -> None:
        self._files.put(host, file, (end, read_at))
