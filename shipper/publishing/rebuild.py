"""Positions from a snapshot and the headers of the host's messages behind it."""

import logging
from collections.abc import Sequence

from shipper.positions import Positions
from shipper.publishing.readback import ReadBack
from shipper.publishing.verdict import Stored

__all__ = ["rebuild"]

logger = logging.getLogger(__name__)


async def rebuild(stream: ReadBack, known: Positions) -> Positions:
    """Return the positions as the stream has them by now; `known` are those of a snapshot, or none.

    Raises `ConnectionLost` or `Rejected`.
    """
    if known.sequence:
        replay = _Replay(known)
        await stream.since(known.sequence, replay.take)
        if replay.begins_with(known):
            return replay.positions
        logger.info(
            "the stream does not have the last message that the positions cover; reading all that it has"
        )
    whole = _Replay(known)
    await stream.since(1, whole.take)
    return whole.positions


class _Replay:
    """Positions on their way from those of a snapshot to those of the stream."""

    def __init__(self, known: Positions) -> None:
        self.positions = known
        self._first: Stored | None = None

    def take(self, page: Sequence[Stored]) -> None:
        self._first = self._first or page[0]
        origins = [message.origin for message in page if message.origin is not None]
        self.positions = self.positions.advance(origins, page[-1].sequence)

    def begins_with(self, known: Positions) -> bool:
        first = self._first
        return (
            first is not None
            and first.sequence == known.sequence
            and first.origin is not None
            and first.origin.agent == known.agent
        )
