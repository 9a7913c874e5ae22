"""Brings a cluster of brokers to what is declared, from whichever of them: each may be the first, and all may try at once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from broker.app.exits import ConfigurationError, OperatorError
from broker.client.bucket import Conflict
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import Refused, apply
from broker.provision.capacity import smallest_capacity, write_capacity
from broker.provision.steps import Plan
from broker.topology import Topology

__all__ = ["join"]

_PAUSE, _SHORT = 0.5, 1.0  # seconds between attempts, and for an answer
_STEP = 5.0  # seconds for a change: without a leader nobody answers, and what was done meanwhile is there at the next attempt


async def join(
    connection: Connection, server: str, desired: Topology, tell: Callable[[str], None]
) -> Plan:
    """Return what was done, once the cluster has a leader and is as declared, however long that takes.

    The stream gets what it may have on the smallest of the servers, `server` being ours. `tell` is told what is waited
    for, and an empty text in the end. Raises `ConfigurationError` for what the plan refuses.
    """
    while True:
        try:
            done = await _attempt(connection, server, desired)
        except (ConnectionLost, Rejected, Refused, Conflict) as error:
            tell(str(error))
        except ConfigurationError:
            raise
        except OperatorError as error:  # another one was quicker, nobody leads, or a disk fails
            tell(str(error))
        else:
            tell("")
            return done
        await asyncio.sleep(_PAUSE)


async def _attempt(connection: Connection, server: str, desired: Topology) -> Plan:
    # nobody answers while there is no leader, so that is asked often rather than for long
    await connection.api("STREAM.NAMES", patience=_SHORT)
    own = desired.bound
    if own is None or own <= 0:
        return await apply(connection, desired, _STEP)
    room, done = 0, Plan(())
    while room != (room := await smallest_capacity(connection, server, own)):
        done = await apply(connection, replace(desired, room=room), _STEP)
        # told only now, where there was no bucket before; whoever was smaller meanwhile is seen by the next look
        await write_capacity(connection, server, own)
    return done
