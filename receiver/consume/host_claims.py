"""Claims of hosts that moved here from another partition, as messages say it (docs/protocol.md).

`Log-Follows` names the ends of a host's lines in its former partitions, `Log-Moved` the partition
to which a host goes. `host_moves` finds out what a claim has to wait for.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.message import Followed, MalformedMessage, Origin, decode_origin
from nats_logship.wire.subjects import InvalidHost, InvalidSubject
from receiver.consume.judging import parse_host


class HostClaim(NamedTuple):
    """A claim of a host, and the ends of its lines in other partitions, as the host says."""

    host: str
    delivery: Delivery
    follows: tuple[Followed, ...]


class ReceivedEnd(NamedTuple):
    """The end of a host's lines in another partition, and how far that partition was received.

    `reached` is a sequence; 0 if nobody received the partition or it has no message of the host
    left; None if its files must not be taken over.
    """

    end: Followed
    reached: int | None


@dataclass(slots=True)
class Moves:
    """What was found about the claims in some messages.

    `received` is by host and other partition: what can be taken over from there. `malformed` has
    reasons by the sequences of claims. A batch ends before sequence `until`, unless that is None;
    the claim there has to wait if there is a `reason`. `notices` are for the log.
    """

    received: dict[str, dict[int, ReceivedEnd]] = field(default_factory=dict)
    malformed: dict[int, str] = field(default_factory=dict)
    until: int | None = None
    reason: str = ""
    notices: list[str] = field(default_factory=list)

    def require_valid(self, claim: Delivery) -> None:
        """Raise `MalformedMessage` for a claim that names a partition that does not exist."""
        if reason := self.malformed.get(claim.sequence):
            raise MalformedMessage(reason)

    def add_end(self, host: str, end: Followed, reached: int | None) -> None:
        """Note how far a partition was received; the highest end that a claim names counts."""
        ends = self.received[host]
        before = ends.get(end.partition)
        if before is None or before.end.sequence < end.sequence:
            ends[end.partition] = ReceivedEnd(end, reached)


def find_claims(messages: Iterable[tuple[Delivery, RawMessage]]) -> Iterator[HostClaim]:
    """Yield the claims among messages that follow lines in other partitions."""
    for delivery, message in messages:
        if ends := read_follows(message):
            with suppress(InvalidHost, InvalidSubject):  # that's fine: it goes into quarantine
                yield HostClaim(parse_host(message.subject), delivery, ends)


def read_follows(message: RawMessage) -> tuple[Followed, ...]:
    """Return the ends of a host's lines in other partitions that a message says it follows."""
    origin = _read_origin(message, b"Log-Follows")
    return origin.follows if origin else ()


def read_destination(message: RawMessage) -> int | None:
    """Return the partition to which a message says that its host goes, None if it names none."""
    origin = _read_origin(message, b"Log-Moved")
    return origin.moved if origin else None


def _read_origin(message: RawMessage, header: bytes) -> Origin | None:
    if header not in message.head:  # hardly any message has one: do not parse its headers
        return None
    with suppress(MalformedMessage):  # that's fine: the batch puts it into quarantine
        return decode_origin(message.headers)
    return None
