"""Who owns a partition, and does it live? A receiver answers whoever asks; a standby asks, and never takes from a living one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, PARTITIONS_KEY, offset_key
from receiver.consume.claim import Claim
from receiver.meter import PartitionMeter, StandbyQuestion

_PREFIX = "logship.receiver."
_INBOXES = ("_INBOX", "_R_.")  # the second of who asks from another account
_LOOK = 2.0  # seconds between looks whether the connection is still the one that we answer on
_PATIENCE = 2.0  # seconds for an answer
_STANDBY_LOOK = 1.0  # seconds between questions of a standby
_MUTE = "it cannot be asked whether it lives: it is taken over by hand only"

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


async def run_unless_stopped(stop: asyncio.Event, call: Awaitable[Answer]) -> Answer | None:
    """Return what `call` returns; None if `stop` is set first: `call` is cancelled and has ended.

    Raises what `call` raises, also while it is cancelled.
    """
    work = asyncio.ensure_future(call)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.wait({work, stopped})
    return None if work.cancelled() and stop.is_set() else work.result()


@dataclass(slots=True)
class Presence:
    """The address at which one receiver answers, empty until the receiver has heard itself there.

    Who may not subscribe has no address, and so is not taken for dead. `report` returns the answer to a question.
    """

    connection: Connection
    report: Callable[[bytes], bytes]
    address: str = ""
    _name: str = ""
    _client: object = None

    async def begin(self) -> None:
        """Answer from now on, and set `address` if that can be heard; logs if not."""
        while not self.address:
            try:
                await self._subscribe()
                await self.connection.request(f"{_PREFIX}{self._name}", patience=_PATIENCE)
                self.address = self._name
            except ConnectionLost:
                continue  # a new connection is waited for
            except Rejected:
                if await self.connection.client() is self._client:  # else it was lost in between
                    words = "no --standby can take over from this receiver: it may not subscribe to %s%s"
                    logger.warning(words, _PREFIX, self._name)
                    return

    async def last(self) -> None:
        """Go on answering through new connections; never returns."""
        while True:
            await asyncio.sleep(_LOOK)
            if await self.connection.client() is not self._client:
                with suppress(ConnectionLost):
                    await self._subscribe()

    async def _subscribe(self) -> None:
        client = await self.connection.client()
        self._name = self._name or self.connection.new_token()
        await self.connection.subscribe(f"{_PREFIX}{self._name}", self._answer)
        self._client = client

    async def _answer(self, message: Message) -> None:
        # whoever asks may have us answer to any subject, those included that only we have the right to
        if message.reply.startswith(_INBOXES):
            with suppress(ConnectionLost):  # that's fine: whoever asked asks again
                await self.connection.publish(message.reply, self.report(message.data))


async def request_report(connection: Connection, name: str, question: bytes = b"") -> bytes | None:
    """Return what a receiver says of itself at its address; None when nobody answers."""
    with suppress(Rejected, ConnectionLost):
        subject = f"{_PREFIX}{name}"
        return bytes((await connection.request(subject, question, patience=_PATIENCE)).data)
    return None


async def is_gone(connection: Connection, name: str, question: bytes = b"") -> bool:
    """Whether nobody answers at the address of a receiver, though the broker does."""
    if await request_report(connection, name, question) is None:
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
                return True
    return False


async def wait_until_free(claim: Claim, meter: PartitionMeter, silence: float) -> int:
    """Return the revision at which a partition is free, to be claimed at that only; raises `Rejected`, `ConnectionLost`.

    An owner is taken for gone after `silence` seconds without an answer and without a commit. A `claim` that the broker has
    stored without our hearing of it is nobody else's: the partition is free.
    """
    connection, clock = claim.connection, asyncio.get_running_loop().time
    seen, since, told = -1, clock(), ""
    question = StandbyQuestion(partition=meter.partition, standby=claim.owner)
    asked = question.model_dump_json().encode()
    while True:
        at = connection, OFFSETS_BUCKET, offset_key(meter.partition)
        entry = await bucket.read(*at)
        revision = entry.revision if entry else (await bucket.read_newest(*at)).revision
        offset = _owned(entry)
        if offset is None or (offset.owner, offset.presence) == (claim.owner, claim.presence):
            return revision
        meter.note_released(owner=offset.owner)
        if offset.owner != told:
            is_mute = "" if offset.presence else f"; {_MUTE}"
            logger.info(
                "partition %d: standing by behind %s%s", meter.partition, offset.owner, is_mute
            )
        told = offset.owner
        # asked also while it commits: it tells who stands by
        if (
            not (offset.presence and await is_gone(connection, offset.presence, asked))
            or revision != seen
        ):
            seen, since = revision, clock()
        elif clock() - since >= silence:
            words = "partition %d: its owner has not answered for %g s; taking over"
            logger.warning(words, meter.partition, silence)
            return revision
        await asyncio.sleep(_STANDBY_LOOK)


async def find_live_owner(claim: Claim) -> tuple[str, int]:
    """Return the other receiver that has a partition and answers ('' for none), and the revision.

    Raises `Rejected`, `ConnectionLost`.
    """
    at = claim.connection, OFFSETS_BUCKET, offset_key(claim.partition)
    entry = await bucket.read(*at)
    revision = entry.revision if entry else (await bucket.read_newest(*at)).revision
    offset = _owned(entry)
    if offset is None or not offset.presence or offset.presence == claim.presence:
        return "", revision
    is_alive = not await is_gone(claim.connection, offset.presence)
    return offset.owner if is_alive else "", revision


def describe_owners(owners: Mapping[int, str]) -> str:
    """Return why partitions cannot be received with --once, by their owners."""
    words = (f"partition {number} is received by {owner}" for number, owner in owners.items())
    return f"{', '.join(words)}, which is running; end it first, or take over with --take-over"


def _owned(entry: bucket.Entry | None) -> Offset | None:
    """Return the offset of a partition that somebody owns, None where nobody does."""
    with suppress(UnreadableOffset):  # the claim says what is to be done about it
        offset = Offset.decode(entry.value) if entry else None
        return None if offset is None or offset.is_moved or offset.released else offset
    return None
