"""Find out who owns a partition and whether that receiver is running; wait until it has ended.

Each receiver answers at an address that its offsets in KV name.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, PARTITIONS_KEY, offset_key
from receiver.consume.claim import Claim
from receiver.meter import PartitionMeter, StandbyQuestion

_ASK_EVERY = 1.0  # seconds
_NO_ADDRESS = "; it has no address to ask whether it is running, so take over from it by hand"

logger = logging.getLogger(__name__)


async def wait_until_free(claim: Claim, meter: PartitionMeter, silence: float) -> int:
    """Return the revision of the entry at which a partition is free, to be claimed at that only.

    An owner is gone if it has neither answered nor committed for `silence` seconds. The partition
    is also free if its entry is `claim` itself, whose answer was lost. Raises `Rejected`,
    `ConnectionLost`.
    """
    connection, clock = claim.connection, asyncio.get_running_loop().time
    question = StandbyQuestion(partition=meter.partition, standby=claim.owner)
    asked = question.model_dump_json().encode()
    seen, since, logged = -1, clock(), ""
    while True:
        offset, revision = await _read_owned(claim)
        if offset is None or (offset.owner, offset.presence) == (claim.owner, claim.presence):
            return revision
        meter.note_released(owner=offset.owner)
        if offset.owner != logged:
            advice = "" if offset.presence else _NO_ADDRESS
            logger.info(
                "partition %d: standing by behind %s%s", meter.partition, offset.owner, advice
            )
        logged = offset.owner
        # an owner that commits is asked as well: `logreceiver status` shows who has asked
        is_silent = bool(offset.presence) and await is_gone(connection, offset.presence, asked)
        if not is_silent or revision != seen:
            seen, since = revision, clock()
        elif clock() - since >= silence:
            logger.warning(
                "partition %d: its owner has not answered for %g s; taking over",
                meter.partition,
                silence,
            )
            return revision
        await asyncio.sleep(_ASK_EVERY)


async def find_live_owner(claim: Claim) -> tuple[str, int]:
    """Return the other receiver that owns a partition and answers ("" for none), and the revision.

    Raises `Rejected`, `ConnectionLost`.
    """
    offset, revision = await _read_owned(claim)
    if offset is None or not offset.presence or offset.presence == claim.presence:
        return "", revision
    is_alive = not await is_gone(claim.connection, offset.presence)
    return offset.owner if is_alive else "", revision


def describe_owners(owners: Mapping[int, str]) -> str:
    """Return why partitions cannot be received with --once, by their owners."""
    named = (f"partition {number} is received by {owner}" for number, owner in owners.items())
    return f"{', '.join(named)}, which is running; end it first, or take over with --take-over"


async def _read_owned(claim: Claim) -> tuple[Offset | None, int]:
    """Return the offset of a partition, None if nobody owns it, and the entry's revision."""
    at = claim.connection, OFFSETS_BUCKET, offset_key(claim.partition)
    entry = await bucket.read(*at)
    revision = entry.revision if entry else (await bucket.read_newest(*at)).revision
    with suppress(UnreadableOffset):  # the claim says what a person has to do
        offset = Offset.decode(entry.value) if entry else None
        is_free = offset is None or offset.is_moved or offset.released
        return None if is_free else offset, revision
    return None, revision


_PREFIX = "logship.receiver."
_INBOXES = ("_INBOX", "_R_.")  # the second is of clients of another account
_CHECK_EVERY = 2.0  # seconds
_PATIENCE = 2.0  # seconds for an answer


@dataclass(slots=True)
class ReceiverPresence:
    """The address at which this receiver answers, empty until it has received its own question.

    A receiver that may not subscribe has no address, and so is never taken for dead. `report`
    returns the answer to a question.
    """

    connection: Connection
    report: Callable[[bytes], bytes]
    address: str = ""
    _name: str = ""
    _client: object = None

    async def start(self) -> None:
        """Answer from now on, and set `address`; logs if the rights do not suffice."""
        while not self.address:
            try:
                await self._subscribe()
                await self.connection.request(f"{_PREFIX}{self._name}", patience=_PATIENCE)
                self.address = self._name
            except ConnectionLost:
                continue  # `_subscribe` waits for a new connection
            except Rejected:
                if await self.connection.client() is self._client:  # else the connection was lost
                    logger.warning(
                        "no --standby can take over from this receiver: it may not subscribe to "
                        "%s%s",
                        _PREFIX,
                        self._name,
                    )
                    return

    async def keep_answering(self) -> None:
        """Answer through each new connection, too; never returns."""
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            if await self.connection.client() is not self._client:
                with suppress(ConnectionLost):
                    await self._subscribe()

    async def _subscribe(self) -> None:
        client = await self.connection.client()
        self._name = self._name or self.connection.new_token()
        await self.connection.subscribe(f"{_PREFIX}{self._name}", self._answer)
        self._client = client

    async def _answer(self, message: Message) -> None:
        # a client could have us answer to a subject that only we may publish to
        if message.reply.startswith(_INBOXES):
            with suppress(ConnectionLost):  # that's fine: the client asks again
                await self.connection.publish(message.reply, self.report(message.data))


async def request_report(connection: Connection, name: str, question: bytes = b"") -> bytes | None:
    """Return what the receiver at an address answers; None if nobody answers."""
    with suppress(Rejected, ConnectionLost):
        subject = f"{_PREFIX}{name}"
        return bytes((await connection.request(subject, question, patience=_PATIENCE)).data)
    return None


async def is_gone(connection: Connection, name: str, question: bytes = b"") -> bool:
    """Whether no receiver answers at an address, although the broker does."""
    if await request_report(connection, name, question) is None:
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
                return True
    return False
