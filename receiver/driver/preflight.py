"""Check partitions before Spark starts, so that one error names all that a person has to repair."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout
from receiver.driver.from_settings import make_claim
from receiver.driver.standby import describe_owners, find_live_owner
from receiver.settings import ReceiverSettings
from receiver.storage.damage import Damaged, Misplaced, describe_damage


async def require_sound(
    settings: ReceiverSettings, connection: Connection, layout: StreamLayout, numbers: Iterable[int]
) -> None:
    """Raise `ConfigurationError` if no partition can be received, or one is misplaced.

    Otherwise a damaged partition is blocked once it is claimed, and the others are received. If the
    broker does not answer now, the claim finds the damage.
    """

    async def examine(number: int) -> Damaged | None:
        try:
            with suppress(ConnectionLost, Rejected):
                now = datetime.now(UTC)  # noqa: TID251 - of an entry that is never written
                await make_claim(settings, layout, number, connection).examine(now)
        except Damaged as error:
            return error
        return None

    found = await asyncio.gather(*map(examine, numbers))
    errors = [error for error in found if error]
    is_misplaced = any(isinstance(one, Misplaced) for one in errors)
    if errors and (is_misplaced or len(errors) == len(found)):
        raise ConfigurationError(describe_damage(errors))


async def require_unused(
    settings: ReceiverSettings, connection: Connection, layout: StreamLayout, numbers: Iterable[int]
) -> None:
    """With --once raise OperatorError for partitions of running receivers, unless --take-over.

    If the broker does not answer now, the claim asks again.
    """
    if not settings.once or settings.take_over:
        return

    async def find_owner(number: int) -> str:
        with suppress(ConnectionLost, Rejected):
            owner, _ = await find_live_owner(make_claim(settings, layout, number, connection))
            return owner
        return ""

    numbers = list(numbers)
    found = await asyncio.gather(*map(find_owner, numbers))
    if owners := {number: one for number, one in zip(numbers, found, strict=True) if one}:
        raise OperatorError(describe_owners(owners))
