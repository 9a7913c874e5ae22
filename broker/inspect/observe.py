"""Asks the broker for what the checks go by, and says why where it does not answer. Changes nothing."""

import asyncio
import ssl
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from broker.app.exits import ConfigurationError, OperatorError
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.patience import until_answered
from broker.inspect.ask import full_status
from broker.inspect.checks import Check, Observed

__all__ = ["observe"]

_OF_PATIENCE = 0.7  # in which a question may be asked again; the last one ends within the rest


async def observe(
    connection: Connection, checks: Collection[Check], patience: float, now: datetime
) -> Observed:
    """Return what was learnt within `patience` seconds; a broker that is away, or refuses, is no error.

    Raises `ConfigurationError` for a setting of our own.
    """
    seen = Observed(connection.servers, now)
    try:
        async with asyncio.timeout(patience):
            seen = await _reach(connection, seen)
            if set(checks) <= {Check.CONNECTION}:
                return seen
            status = await until_answered(connection, full_status, patience * _OF_PATIENCE)
            return replace(seen, status=status)
    except ConfigurationError:
        raise  # it says nothing of the broker
    except TimeoutError:
        return replace(seen, trouble=f"no answer within {patience:g} s")
    except Rejected as error:
        return replace(seen, trouble=f"the broker refuses: {error.description}")
    except (OperatorError, ConnectionLost) as error:
        return replace(seen, trouble=str(error))


async def _reach(connection: Connection, seen: Observed) -> Observed:
    clock = asyncio.get_running_loop().time
    began = clock()
    client = await connection.once()
    await connection.guard(client.flush(), 5.0)
    end = client.certificate.get("notAfter")
    is_known = isinstance(end, str)
    return replace(
        seen,
        server=client.address,
        connect_seconds=clock() - began,
        certificate_end=_rfc3339(str(end)) if is_known else None,
    )


def _rfc3339(end: str) -> str:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC).isoformat()
