"""Which partitions there are, and whether they can be received.

They are those of the broker's number, and those that hosts have left. They are checked before Spark
starts, so that one error names all that a person has to repair.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import read_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout, count_partitions
from receiver.driver.from_settings import make_claim
from receiver.driver.standby import describe_owners, find_live_owner
from receiver.driver.stopping import run_unless_stopped
from receiver.settings import ReceiverSettings
from receiver.storage.damage import Damaged, Misplaced, describe_damage

_ASK_EVERY = 1.0  # seconds
_NOT_SET_UP = "the broker has no number of partitions; run `logbroker apply`"

_START = 5.0  # seconds in which a broker that was started just now is set up

logger = logging.getLogger(__name__)


async def wait_for_partitions(
    connection: Connection, stop: asyncio.Event, patience: float | None
) -> tuple[StreamLayout, int] | None:
    """Wait until the broker is set up, and return what `find_partitions` returns; None on a stop.

    With a `patience`, in seconds, the broker must be set up within it: raises `BrokerAway`,
    `ConfigurationError`.
    """
    clock = asyncio.get_running_loop().time
    logged, began = "", clock()
    if patience is not None:
        await run_unless_stopped(stop, connection.connect(patience))
    while not stop.is_set():
        reason = _NOT_SET_UP
        try:
            if found := await run_unless_stopped(stop, find_partitions(connection)):
                return found
        except ConnectionLost:
            continue
        except (Rejected, ConfigurationError) as error:  # a person sets it up, or repairs it, later
            reason = reason if isinstance(error, Rejected) else str(error)
        if patience is not None and clock() - began >= patience:
            raise ConfigurationError(f"{reason} first")
        is_starting = reason == _NOT_SET_UP and clock() - began < _START
        if reason != logged and not (is_starting or stop.is_set()):
            logger.warning("%s; waiting", reason)
            logged = reason
        await run_unless_stopped(stop, asyncio.sleep(_ASK_EVERY))
    return None


async def find_partitions(connection: Connection) -> tuple[StreamLayout, int] | None:
    """Return how the broker spreads hosts, and how many partitions there are; None if not set up.

    Raises `ConfigurationError` for an entry that is no number, `Rejected`, `ConnectionLost`.
    """
    layout = await read_layout(connection)
    return (layout, await request_partition_count(connection, layout)) if layout else None


async def request_partition_count(connection: Connection, layout: StreamLayout) -> int:
    """Return the number of partitions, with those that hosts have left.

    Without the right to read the streams' configuration it is the layout's number.
    """
    try:
        configs = [(await connection.api(f"STREAM.INFO.{name}"))["config"] for name in layout.names]
    except Rejected:
        return layout.partitions  # the supervisor of a partition logs what is wrong with its stream
    subjects = [subject for config in configs for subject in config.get("subjects") or ()]
    return max(layout.partitions, count_partitions(subjects))


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
