"""Learns what the checks go by: asks the broker, and says why where it does not answer. Changes nothing."""

import asyncio
import ssl
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from broker.app.exits import ConfigurationError, OperatorError
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.patience import until_answered
from broker.looking.checks import Reached, Seen
from broker.looking.findings import Check
from broker.looking.hosts import last_seen, rates
from broker.looking.status import ask

__all__ = ["look"]

_OF_PATIENCE = 0.7  # in which a question may be begun again; the last one ends within the rest
_ONLY_REACHED = {Check.CONNECTION}
_COUNTED = 1.0  # seconds over which messages of hosts are counted


async def look(
    connection: Connection, checks: Collection[Check], patience: float, now: datetime
) -> Seen:
    """Return what was learnt within `patience` seconds; never raises for a broker that is away, or will not tell.

    Raises `ConfigurationError` for a setting of our own.
    """
    seen = Seen(now, connection.servers)
    try:
        async with asyncio.timeout(patience):
            seen = await _reach(connection, seen)
            return await _learn(connection, checks, seen, patience * _OF_PATIENCE)
    except ConfigurationError:
        raise  # it says nothing of the broker
    except TimeoutError:
        return _troubled(seen, f"no answer within {patience:g} s")
    except Rejected as error:
        return _troubled(seen, f"the broker refuses: {error.description}")
    except (OperatorError, ConnectionLost) as error:
        return _troubled(seen, str(error))


def _troubled(seen: Seen, trouble: str) -> Seen:
    return replace(seen, trouble=trouble)


async def _reach(connection: Connection, seen: Seen) -> Seen:
    clock = asyncio.get_running_loop().time
    began = clock()
    client = await connection.once()
    connected = clock()
    await connection.guard(client.flush(), 5.0)
    reached = Reached(connected - began, clock() - connected, _end_of(client.certificate))
    return Seen(seen.now, client.address, reached)


def _end_of(certificate: Mapping[str, Any]) -> str | None:
    end = certificate.get("notAfter")
    if not isinstance(end, str):
        return None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC).isoformat()


async def _learn(
    connection: Connection, checks: Collection[Check], seen: Seen, patience: float
) -> Seen:
    if not set(checks) - _ONLY_REACHED:
        return seen

    async def learn(connection: Connection) -> Seen:
        status = await ask(connection)
        if Check.HOSTS not in checks:
            return replace(seen, status=status)
        hosts, sending = await last_seen(connection), await rates(connection, _COUNTED)
        return replace(seen, status=status, hosts=hosts, rates=sending)

    return await until_answered(connection, learn, patience)
