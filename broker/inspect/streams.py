"""Ask a broker for its streams, pauses, and the interval of rounds."""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from nats_logship.app.exits import OperatorError
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.config import read_interval, read_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.pause import PAUSE_KEY, Pause, UnreadablePauses, decode_pauses
from nats_logship.wire.streams import CONFIG_BUCKET, StreamLayout

logger = logging.getLogger(__name__)


async def read_known_layout(connection: Connection) -> StreamLayout:
    """Return what `read_layout` returns; 0 partitions in one stream if the broker has no bucket.

    Such a broker was not set up by logbroker. Raises what `read_layout` raises, also while the
    leader of the bucket is being elected.
    """
    try:
        return await read_layout(connection) or StreamLayout(0)
    except Rejected as refused:
        if refused.is_nobody:  # there is no bucket, or it has no leader
            try:
                await connection.api(f"STREAM.INFO.KV_{CONFIG_BUCKET}")
            except Rejected as error:
                refused = error
        if refused.is_leaderless:
            raise
        return StreamLayout(0)


def require_partitions(
    wanted: Iterable[int], layout: StreamLayout, configs: Iterable[Mapping[str, Any]]
) -> None:
    """Raise `OperatorError` for a partition that none of the streams, of these `configs`, holds.

    A broker that was not set up by logbroker may hold any.
    """
    held = {number for one in configs for number in layout.partitions_in(one)}
    if layout.partitions and (absent := sorted({*wanted} - held)):
        raise OperatorError(
            f"partition {absent[0]} does not exist: the broker has {len(held)}, 0 to {max(held)}"
        )


async def list_streams(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams that hold the lines.

    Raises `Rejected`, `ConnectionLost`, `ConfigurationError`.
    """
    return (await read_known_layout(connection)).names


async def choose_stream(connection: Connection, name: str | None) -> str:
    """Return the stream of this name; without a name the only one.

    Raises `OperatorError` if there is no such stream, or none is named and there are several.
    """
    names = await list_streams(connection)
    if name not in names and (name or len(names) > 1):
        raise OperatorError(f"--stream must be one of {', '.join(names)}")
    return name or names[0]


async def read_pauses(connection: Connection) -> tuple[Pause, ...]:
    """Return the pauses in force; none, and a warning in the log, if they are unreadable.

    Raises `ConnectionLost`.
    """
    try:
        entry = await bucket.read(connection, CONFIG_BUCKET, PAUSE_KEY)
        pauses = decode_pauses(entry.value) if entry else ()
    except Rejected:  # there is no bucket, or this user may not read it
        return ()
    except UnreadablePauses as error:
        logger.warning("the pauses cannot be read, so no host is paused: %s", error)
        return ()
    now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
    return tuple(one for one in pauses if not one.is_over(now))


async def read_interval_in_force(connection: Connection, now: int) -> float:
    """Return the shortest interval between two rounds of a host in seconds; 0 if there is none.

    `now` is the broker's clock, in nanoseconds since the epoch. Raises `ConnectionLost`.
    """
    try:
        return (await read_interval(connection)).in_force(now)
    except Rejected:  # there is no bucket, or this user may not read it
        return 0.0
