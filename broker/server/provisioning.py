"""Brings a running nats-server to what is declared, and logs what that changed; of a cluster, waits for it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from broker.app.exits import OperatorError
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import apply
from broker.provision.difference import is_shown, shown
from broker.provision.joining import join
from broker.provision.steps import Plan
from broker.server.resolve import Resolved
from broker.wire.streams import STREAM

__all__ = ["Provisioned", "provision", "refuse_lost_streams"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What the stream holds, in messages, and the most that it may, in bytes."""

    streams: str
    messages: int
    max_bytes: int


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
        info = await connection.api(f"STREAM.INFO.{STREAM}")
    except (ConnectionLost, Rejected) as error:
        raise _unexpected(connection, error) from None
    _log(done)
    return Provisioned(STREAM, info["state"]["messages"], info["config"]["max_bytes"])


async def refuse_lost_streams(connection: Connection, stored: frozenset[str]) -> None:
    """Raise `OperatorError` where the server goes on without a stream that its store has: it would be begun anew."""
    known: set[str] = set()
    try:
        while True:
            page = await connection.api("STREAM.NAMES", {"offset": len(known)})
            names = page.get("streams") or []
            known.update(names)
            if not names or len(known) >= page.get("total", 0):
                break
    except (ConnectionLost, Rejected) as error:
        raise _unexpected(connection, error) from None
    if lost := sorted(stored - known):
        raise OperatorError(
            f"nats-server could not recover {', '.join(lost)}, see its log above; nothing was changed: mend the "
            "store, or start with an empty one and `logbroker restore` a backup"
        )


def _unexpected(connection: Connection, error: Exception) -> OperatorError:
    return OperatorError(
        f"nats-server at {connection.servers} does not answer as it should: {error}"
    )


def _log(done: Plan) -> None:
    for step in done.steps:
        for change in filter(is_shown, step.changes):
            logger.info(
                "%s %s: %s is now %s, was %s",
                step.kind.value,
                step.name,
                change.field,
                shown(change.field, change.after),
                shown(change.field, change.before),
            )
