"""Takes messages out of the stream. A removal that was done already is done again without harm."""

import asyncio
from collections.abc import Sequence

from broker.client.connection import Connection, Rejected
from broker.keeping.room_marks import Amount
from broker.keeping.room_plan import Removal
from broker.wire.streams import STREAM

__all__ = ["remove"]

_AT_ONCE = 16  # each is a sync of the server's; publishers must find their turn between them
_AT_A_LOOK = 512  # between two looks at whether it is still the same stream
_GONE = {10037, 10043, 10057}  # messages that retention or somebody else took meanwhile
_PATIENCE = 60.0  # seconds


async def remove(connection: Connection, removals: Sequence[Removal], created: str) -> Amount:
    """Carry removals out, oldest first, as long as the stream is the one made at `created`; return what went.

    Raises `Rejected`, `ConnectionLost`; some are done then and some are not, and none is under way.
    """
    total = Amount()
    for begin in range(0, len(removals), _AT_ONCE):
        if begin % _AT_A_LOOK == 0:
            info = await connection.api(f"STREAM.INFO.{STREAM}")
            if info["created"] != created:
                return total
        part = removals[begin : begin + _AT_ONCE]
        done = await asyncio.gather(
            *(_remove(connection, removal) for removal in part), return_exceptions=True
        )
        for one in done:
            if isinstance(one, BaseException):
                raise one
            total += one
    return total


async def _remove(connection: Connection, removal: Removal) -> Amount:
    if removal.until is not None:
        answer = await connection.api(
            f"STREAM.PURGE.{STREAM}",
            {"filter": removal.subject, "seq": removal.until},
            patience=_PATIENCE,
        )
        return removal.amount if answer.get("purged") else Amount()
    try:
        await connection.api(
            f"STREAM.MSG.DELETE.{STREAM}",
            {"seq": removal.sequence, "no_erase": True},
            patience=_PATIENCE,
        )
    except Rejected as error:
        if error.error not in _GONE:
            raise
        return Amount()
    return removal.amount
