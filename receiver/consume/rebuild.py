"""What a receiver would have written of messages read again: the same judgement of spans, from a clean beginning.

Decides only; what is to be set aside is said by an exception, as it is for a receiver.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.wire.message import Origin, decode_origin, decode_payload
from broker.wire.subjects import Subject
from receiver.consume.endings import Source
from receiver.consume.judging import Judge
from receiver.consume.received import Received

__all__ = ["Piece", "Rebuilder"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines as they go to a host's file: whole ones, of one source file, or of none that is known (`file` is empty).

    `stored_at` is in nanoseconds since the epoch. `file_id` is that of its span, empty for none; `follows` says that
    nothing is missing between it and the piece of its file before. A message has a piece for each of its sections.
    """

    host: str
    file: str
    sequence: int
    stored_at: int
    payload: bytes
    file_id: str = ""
    follows: bool = True

    @property
    def source(self) -> Source:
        """Whose lines these are."""
        return self.host, self.file_id


class Rebuilder:
    """The judgement of a partition's messages, in the order of their sequences; remembers how far each file came."""

    def __init__(self, wants: Callable[[str], bool]) -> None:
        """Know no file yet, so that each may begin anywhere; `wants` says of which paths lines are wanted."""
        self._wants = wants
        self._judge = Judge(_Memory(), wants)

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
    ) -> tuple[Piece, ...]:
        """Return what the sections of a message add to its host's files, in order: nothing of a claim or a repeat.

        Raises `MalformedMessage`, `InvalidHost` or `InvalidSubject` for what a receiver sets aside.
        """
        host = Subject.parse(subject).host
        origin = decode_origin(headers)
        if (files := _files(origin)) and not any(map(self._wants, files)):
            return ()
        whole = decode_payload(headers, data)
        found = self._judge.lines(host, origin, whole, sequence, stored_at)
        return tuple(
            Piece(host, of.file, sequence, stored_at, of.payload, of.file_id, of.follows)
            for of in found
        )


def _files(origin: Origin | None) -> list[str]:
    return [section.path for section in origin.sections] if origin else [""]


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
