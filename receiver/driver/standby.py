"""Find out who owns a partition, and wait until its owner has ended."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from nats_logship.client import bucket
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.claim import Claim
from receiver.driver.presence import is_gone
from receiver.partition_meter import PartitionMeter
from receiver.partition_report import StandbyQuestion

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
