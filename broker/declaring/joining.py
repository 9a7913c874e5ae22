"""Brings a cluster of brokers to what is declared, from whichever of them: each may be the first, and all may try at once."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.declaring.provision import STREAM_NOT_FOUND, Refused, apply
from broker.declaring.steps import Plan
from broker.exits import ConfigurationError, OperatorError
from broker.topology import STREAM, Topology

__all__ = ["join"]

_PAUSE, _SHORT = 0.5, 1.0  # seconds between attempts, and for an answer
logger = logging.getLogger(__name__)


async def join(connection: Connection, desired: Topology, tell: Callable[[str], None]) -> Plan:
    """Return what was done, once the cluster has a leader and is as declared, however long that takes.

    `tell` is told what is waited for, and an empty text in the end. The stream is never made larger here: what another
    server has made it fits there, and what fits here alone is of no use. Raises `ConfigurationError` for what the plan refuses.
    """
    while True:
        try:
            done = await apply(connection, await _within(connection, desired))
        except (ConnectionLost, Rejected, Refused) as error:
            tell(str(error))
        except ConfigurationError:
            raise
        except OperatorError as error:  # another one was quicker, or nobody leads
            tell(str(error))
        else:
            tell("")
            return done
        await asyncio.sleep(_PAUSE)


async def _within(connection: Connection, desired: Topology) -> Topology:
    try:
        # nobody answers while there is no leader, so it is asked often rather than for long
        info = await connection.api(f"STREAM.INFO.{STREAM}", patience=_SHORT)
    except Rejected as error:
        if error.error == STREAM_NOT_FOUND:
            return desired
        raise
    held = info["config"].get("max_bytes", -1)
    if desired.max_bytes is None or held <= 0:
        return desired
    bound = held if desired.max_bytes <= 0 else min(held, desired.max_bytes)
    return replace(desired, max_bytes=bound)
