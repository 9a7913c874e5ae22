"""Brings a running nats-server to what is declared, and logs what that changed; of a cluster, waits for it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from broker.app.exits import ConfigurationError, OperatorError
from broker.client.config import read_streams
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import apply
from broker.provision.cluster import join
from broker.provision.steps import visible
from broker.server.resolve import Resolved
from broker.topology import mirrored_site
from broker.wire.streams import stream_names

__all__ = ["Provisioned", "provision", "refuse_lost_streams"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What the streams hold, in messages, and the most that they may, in bytes."""

    streams: str
    messages: int
    max_bytes: int
    mirror: str | None
    """The site of which the streams are copies, if any."""


async def provision(
    connection: Connection, resolved: Resolved, wait: Callable[[str], None]
) -> Provisioned:
    """Carry out what is declared; `wait` is told what a cluster is waited for.

    Raises `OperatorError` for what is refused, or does not answer.
    """
    try:
        if resolved.conf.cluster:
            done = await join(connection, resolved.conf.name, resolved.topology, wait)
        else:
            done = await apply(connection, resolved.topology)
        names = stream_names(await read_streams(connection))
        infos = [await connection.api(f"STREAM.INFO.{name}") for name in names]
    except (ConnectionLost, Rejected) as error:
        raise _unexpected(connection, error) from None
    count = len(names)
    if count != resolved.topology.stream_count:  # the rights of receivers are made for that number
        raise ConfigurationError(f"the broker has {count} streams; give --streams {count}")
    for step in done:
        for field, before, after in visible(step):
            logger.info(
                "%s %s: %s is now %s, was %s", step.kind.value, step.name, field, after, before
            )
    return Provisioned(
        f"stream {names[0]}" if count == 1 else f"{count} streams",
        sum(info["state"]["messages"] for info in infos),
        sum(info["config"]["max_bytes"] for info in infos),
        mirrored_site(infos[0]["config"]),
    )


async def refuse_lost_streams(connection: Connection, stored: frozenset[str]) -> None:
    """Raise `OperatorError` where the server goes on without a stream that its store has: it would be begun anew."""
    try:
        known = await connection.pages("STREAM.NAMES", "streams")
    except (ConnectionLost, Rejected) as error:
        raise _unexpected(connection, error) from None
    if lost := sorted(stored.difference(known)):
        raise OperatorError(
            f"nats-server could not recover {', '.join(lost)}, see its log above; nothing was changed: mend the "
            "store, or start with an empty one and `logbroker restore` a backup"
        )


def _unexpected(connection: Connection, error: Exception) -> OperatorError:
    return OperatorError(
        f"nats-server at {connection.servers} does not answer as it should: {error}"
    )
