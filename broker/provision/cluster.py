"""Brings the own server to what is declared, and a cluster of brokers from whichever of them: all may try at once.

A stream that all servers hold is limited by the smallest of them: each server keeps a KV entry with how much it can hold.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from broker.app.exits import ConfigurationError, OperatorError
from broker.client import bucket
from broker.client.config import read_streams
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import STREAM_NOT_FOUND, Refused, apply
from broker.provision.steps import Step, visible
from broker.topology import Topology
from broker.wire.streams import CONFIG_BUCKET, stream_names

__all__ = ["join", "provision"]

_KEY = "capacity"
_PAUSE, _SHORT = 0.5, 1.0  # seconds between attempts, and for an answer
_STEP = 5.0  # seconds for a change: without a leader nobody answers, and what was done meanwhile is there at the next attempt


logger = logging.getLogger(__name__)


async def provision(
    connection: Connection,
    desired: Topology,
    member: str | None,
    stored: frozenset[str],
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Bring the server to what is declared, log what that changed, and return what it tells of the streams (STREAM.INFO).

    `member` is its name in a cluster, which is waited for and told of by `tell`. A server that is alone, and does not know a
    stream that is `stored`, would begin it anew: then nothing is done. Raises `OperatorError`, also where it does not answer.
    """
    try:
        if member is not None:
            done = await join(connection, member, desired, tell)
        else:
            known = await connection.pages("STREAM.NAMES", "streams")
            if lost := sorted(stored.difference(known)):
                raise OperatorError(
                    f"nats-server could not recover {', '.join(lost)}, see its log above; nothing was changed: mend the "
                    "store, or start with an empty one and `logbroker restore` a backup"
                )
            done = await apply(connection, desired)
        names = stream_names(await read_streams(connection))
        infos = [await connection.api(f"STREAM.INFO.{name}") for name in names]
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"nats-server at {connection.servers} does not answer as it should: {error}"
        ) from None
    # the rights of receivers are made for the declared number
    if (count := len(names)) != desired.stream_count:
        raise ConfigurationError(f"the broker has {count} streams; give --streams {count}")
    for step in done:
        for field, before, after in visible(step):
            what = f"{step.kind.value} {step.name}"
            logger.info("%s: %s is now %s, was %s", what, field, after, before)
    return infos


async def join(
    connection: Connection, server: str, desired: Topology, tell: Callable[[str], None]
) -> tuple[Step, ...]:
    """Return what was done, once the cluster has a leader and is as declared, however long that takes.

    The stream gets what it may have on the smallest of the servers, `server` being ours. `tell` is told what is waited
    for, and an empty text in the end. Raises `ConfigurationError` for what the plan refuses.
    """
    while True:
        try:
            done = await _attempt(connection, server, desired)
        # another one was quicker, nobody leads, or a disk fails
        except (ConnectionLost, Rejected, bucket.Conflict, OperatorError) as error:
            if isinstance(error, ConfigurationError) and not isinstance(error, Refused):
                raise
            tell(str(error))
        else:
            tell("")
            return done
        await asyncio.sleep(_PAUSE)


async def _attempt(connection: Connection, server: str, desired: Topology) -> tuple[Step, ...]:
    # nobody answers while there is no leader, so that is asked often rather than for long
    await connection.api("STREAM.NAMES", patience=_SHORT)
    own = desired.bound
    if own is None or own <= 0:
        return await apply(connection, desired, _STEP)
    room: int = 0
    done: tuple[Step, ...] = ()
    while room != (room := await _smallest(connection, server, own)):
        done = await apply(connection, replace(desired, room=room), _STEP)
        # told only now, where there was no bucket before; whoever was smaller meanwhile is seen by the next look
        await _write(connection, server, own)
    return done


async def _smallest(connection: Connection, server: str, own: int) -> int:
    """Return the bytes that the stream may have on every server that has told, `own` being those of `server`.

    Raises `Rejected`, `ConnectionLost`.
    """
    prefix = f"$KV.{CONFIG_BUCKET}.{_KEY}."
    try:
        info = await connection.api(
            f"STREAM.INFO.KV_{CONFIG_BUCKET}", {"subjects_filter": f"{prefix}>"}
        )
    except Rejected as error:
        if error.error == STREAM_NOT_FOUND:
            return own  # the first of all
        raise
    if info["config"].get("mirror"):
        return own  # these are another site's
    others = {subject.removeprefix(prefix) for subject in info["state"].get("subjects") or ()}
    told = [await _capacity_of(connection, other) for other in sorted(others - {server})]
    return min([own, *filter(None, told)])


async def _write(connection: Connection, server: str, own: int) -> None:
    """Tell the others how many bytes the stream may have on this server; raises `Conflict`, `ConnectionLost`."""
    key, value = f"{_KEY}.{server}", b"%d" % own
    entry = await bucket.read(connection, CONFIG_BUCKET, key)
    if entry is None or entry.value != value:
        revision = entry.revision if entry else 0
        # a bucket that is the copy of another site's takes no entries of ours, and needs none
        with suppress(Rejected):
            await bucket.write(connection, CONFIG_BUCKET, key, value, revision)


async def _capacity_of(connection: Connection, server: str) -> int | None:
    entry = await bucket.read(connection, CONFIG_BUCKET, f"{_KEY}.{server}")
    is_number = entry is not None and entry.value.isdigit() and len(entry.value) < 20
    return int(entry.value) if entry and is_number else None
