"""Takes chosen messages out of the stream, and single ones for good; tells before what that means.

Killed in the middle, some are gone and some are not: the same command again takes the rest.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.keeping.room_asking import ask
from broker.keeping.room_marks import Amount
from broker.keeping.room_plan import Sweep
from broker.keeping.room_received import Received
from broker.keeping.room_removing import remove
from broker.keeping.room_scan import Scan
from broker.keeping.wanted import Tally, Wanted
from broker.looking.message import Held
from broker.looking.one import fetch
from broker.wire.streams import STREAM

__all__ = ["Look", "consequences", "erase", "look", "purge"]

_ALL = Amount(2**63, 2**63)
_STEP = 5_000  # messages that are removed before more are looked at


class Look:
    """What was seen of the stream: its description, what receivers have, what is wanted, and what that comes to."""

    def __init__(self, info: Mapping[str, Any], received: Received, wanted: Wanted) -> None:
        """Begin with nothing counted; what comes from now on is not wanted."""
        self.info = info
        self.wanted = replace(wanted, until=min(wanted.until, int(info["state"]["last_seq"]) + 1))
        self.tally = Tally(received)


async def look(connection: Connection, wanted: Wanted, *, received: bool) -> Look:
    """Return what would go; only what all receivers have if `received`. Raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{STREAM}")
    known = (await ask(connection, info)).received
    seen = Look(info, known, replace(wanted, received=known) if received else wanted)
    async with Scan(connection, int(info["state"]["first_seq"]), seen.wanted.filters) as scan:
        while page := await scan.page():
            sweep = Sweep(_ALL, seen.wanted)
            for message in page:
                sweep.take(message)
            seen.tally.add(sweep.chosen)
    return seen


async def purge(connection: Connection, seen: Look) -> Amount:
    """Take out what was looked at, and return what went; raises `Rejected`, `ConnectionLost`."""
    total = Amount()
    sweep = Sweep(_ALL, seen.wanted)
    created = seen.info["created"]
    async with Scan(connection, int(seen.info["state"]["first_seq"]), seen.wanted.filters) as scan:
        while page := await scan.page():
            for message in page:
                sweep.take(message)
            if len(sweep.chosen) >= _STEP:
                total += await remove(connection, sweep.removals(), created)
                sweep.chosen.clear()
    return total + await remove(connection, sweep.removals(), created)


async def consequences(connection: Connection, message: Held) -> list[str]:
    """Return what is to be known before a message is erased; raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{STREAM}")
    known = (await ask(connection, info)).received
    partition = message.subject.partition if message.subject else None
    newest = await connection.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": message.name})
    words = []
    if known.has(partition, message.name, message.sequence, message.stored_at):
        words.append("receivers have it: their files, and what was made of them, are not touched")
    else:
        words.append("no receiver has it yet: they will name its lines as missing")
    if int(newest["message"]["seq"]) == message.sequence:
        words.append(
            "it is the newest of its host: a shipper whose positions are lost as well ships these lines again, as long as "
            "its file has them"
        )
    return words


async def erase(connection: Connection, message: Held) -> None:
    """Take a message out and overwrite it in the store.

    Raises `OperatorError` where another one is there by now, `Rejected`, `ConnectionLost`.
    """
    found = await fetch(connection, message.sequence)
    if (found.name, found.stored_at) != (message.name, message.stored_at):
        raise OperatorError(
            f"message {message.sequence} is another one by now; nothing was removed"
        )
    body = {"seq": message.sequence, "no_erase": False}
    await connection.api(f"STREAM.MSG.DELETE.{STREAM}", body, patience=60)
