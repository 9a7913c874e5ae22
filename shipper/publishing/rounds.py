"""Rounds: the blocks that are published together, whole or not at all, and the messages that they become.

Cuts and labels; never sends. One round is in flight at a time, so its first message can name the subject's last sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.block import Block, Origin, encode_origin

__all__ = [
    "FIRST_SIZE",
    "LONE_SIZE",
    "MAX_BLOCKS",
    "Outgoing",
    "Round",
    "cut",
    "next_size",
    "outgoing",
    "unacknowledged",
]

MAX_BLOCKS = 500
"""The most blocks of a round: servers take 1000 messages in a batch unless they are told otherwise."""

FIRST_SIZE = 256 * 1024
"""Bytes of lines in the first round, and the least that a slow line brings it down to."""

LONE_SIZE = 2 * 1024 * 1024
"""Bytes of lines in a round of one block, the largest that there are: it is stored as it comes, a batch is written twice."""

_NEAR, _BRISK, _QUICK, _SLOW = 0.06, 0.25, 1.0, 5.0  # seconds
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_BATCH_ID, _BATCH_SEQUENCE = "Nats-Batch-Id", "Nats-Batch-Sequence"
_BATCH_COMMIT = "Nats-Batch-Commit"


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks in the order in which they were read; there is at least one."""

    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """Bytes of lines."""
        return sum(len(block.payload) for block in self.blocks)

    @property
    def is_lone(self) -> bool:
        """Whether all lines are of one file."""
        return len({block.origin.file for block in self.blocks}) == 1

    @property
    def last(self) -> Origin:
        """The origin of the last block: once that is stored, the whole round is."""
        return self.blocks[-1].origin


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it is sent; `answered` says whether the sender wants to hear of it."""

    headers: dict[str, str]
    payload: bytes
    answered: bool


def cut(blocks: Sequence[Block], most_bytes: int, most_blocks: int = MAX_BLOCKS) -> list[Round]:
    """Cut blocks into rounds of at most `most_bytes` of payload, or of one block that is larger; keeps their order."""
    rounds: list[Round] = []
    taken: list[Block] = []
    size = 0
    for block in blocks:
        if taken and (len(taken) == most_blocks or size + len(block.payload) > most_bytes):
            rounds.append(Round(tuple(taken)))
            taken, size = [], 0
        taken.append(block)
        size += len(block.payload)
    return [*rounds, Round(tuple(taken))] if taken else rounds


def next_size(size: int, round_: Round, took: float, most: int) -> int:
    """Return how many bytes the next round may have after one of at most `size` took `took` seconds to be acknowledged.

    A round is sent again whole, so on a slow line it must stay well below the time after which a connection is given
    up; on a quick one it grows up to `most`, twofold or, where that is sure to be quick too, fourfold, and with a broker
    nearby to one block where only one file is read.
    """
    if took < _NEAR * max(1, round_.size / LONE_SIZE) and round_.is_lone:
        most = min(most, LONE_SIZE)
    if took > _SLOW:
        return min(most, max(FIRST_SIZE, size // 2))
    if took < _QUICK:
        size *= 4 if took < _BRISK else 2
    return min(most, size)


def outgoing(round_: Round, expected: int, batch: str) -> list[Outgoing]:
    """Return the messages of a round; stored only if `expected` is still the subject's last sequence.

    One block is a plain publish, more are an atomic batch (ADR-50) named `batch`, at most 64 characters. The commit's
    answer is the round's; the first message asks for one too, since its refusal would go unheard.
    """
    count = len(round_.blocks)
    messages = []
    for number, block in enumerate(round_.blocks, start=1):
        headers = encode_origin(block.origin)
        if number == 1:
            headers[_EXPECTED] = str(expected)
        if count > 1:
            headers[_BATCH_ID] = batch
            headers[_BATCH_SEQUENCE] = str(number)
        if number == count > 1:
            headers[_BATCH_COMMIT] = "1"
        messages.append(Outgoing(headers, block.payload, answered=number in {1, count}))
    return messages


def unacknowledged(round_: Round) -> list[Outgoing]:
    """Return the messages of a round that nobody waits for."""
    return [
        Outgoing(encode_origin(block.origin), block.payload, answered=False)
        for block in round_.blocks
    ]
