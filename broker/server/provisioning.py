"""Brings a nats-server that is there to what is declared, and says what that changed; of a cluster, waits for it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import OperatorError
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import apply
from broker.provision.difference import is_shown, shown
from broker.provision.joining import join
from broker.provision.steps import Plan
from broker.server.outfit import Outfit
from broker.server.store import remember_promise
from broker.wire.streams import STREAM

__all__ = ["Held", "begin", "provision"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """What the stream holds, in messages, and the most that it may, in bytes."""

    messages: int
    max_bytes: int


async def begin(
    connection: Connection, outfit: Outfit, stored: frozenset[str], wait: Callable[[str], None]
) -> Held:
    """Do as `provision` does, for a server that has just started on a store with these streams.

    Raises `OperatorError` also where the server goes on without one of them: it would be begun anew.
    """
    if outfit.conf.cluster is None:  # else its leader says what this server is to have
        await _refuse_lost(connection, stored)
    return await provision(connection, outfit, wait)


async def provision(connection: Connection, outfit: Outfit, wait: Callable[[str], None]) -> Held:
    """Carry out what is declared; `wait` is told what a cluster is waited for.

    Raises `OperatorError` for what is refused, or does not answer.
    """
    try:
        if outfit.conf.cluster:
            done = await join(connection, outfit.conf.name, outfit.topology, wait)
        else:
            done = await apply(connection, outfit.topology)
        info = await connection.api(f"STREAM.INFO.{STREAM}")
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"nats-server at {connection.servers} does not answer as it should: {error}"
        ) from None
    _say(done)
    remember_promise(Path(outfit.conf.folder), info["config"]["max_bytes"])
    return Held(info["state"]["messages"], info["config"]["max_bytes"])


async def _refuse_lost(connection: Connection, stored: frozenset[str]) -> None:
    known: set[str] = set()
    try:
        while True:
            page = await connection.api("STREAM.NAMES", {"offset": len(known)})
            names = page.get("streams") or []
            known.update(names)
            if not names or len(known) >= page.get("total", 0):
                break
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"nats-server at {connection.servers} does not answer as it should: {error}"
        ) from None
    if lost := sorted(stored - known):
        raise OperatorError(
            f"nats-server could not bring back {', '.join(lost)}, see what it said above; nothing was changed: mend the "
            "store, or start with an empty one and `logbroker restore` a backup"
        )


def _say(done: Plan) -> None:
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
