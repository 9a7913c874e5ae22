"""Ask the logbrokers of all servers at once: their reports, and their credentials.

A request without a known number of answers ends 0.3 seconds after the last answer.
"""

import asyncio
import json
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from broker.inspect.streams import list_streams
from broker.report import (
    CREDENTIALS_SUBJECT,
    NAMES_REQUEST,
    REPORT_SUBJECT,
    CredentialsReport,
    NodeReport,
)
from nats_logship.app.exits import OperatorError
from nats_logship.client.answer import ConnectionLost, Denied
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.wire.delivery import RawMessage

Answer = TypeVar("Answer")
_REPORT_PATIENCE, _NEXT_REPORT = 2.0, 0.3  # seconds for the first answer, and for each further one
_CREDENTIALS_PATIENCE = 15.0  # seconds; a server applies a change before it answers
_NO_RESPONDERS = "503"


async def collect_reports(connection: Connection, expected: int = 0) -> tuple[NodeReport, ...]:
    """Return the reports of all logbrokers by server name.

    `expected` is their number, 0 if unknown. A bare nats-server sends none, and a user without the
    right to ask gets none. Raises `ConnectionLost`.
    """
    read = NodeReport.model_validate_json
    found = await _collect(connection, REPORT_SUBJECT, b"", read, expected=expected)
    return tuple(sorted(found, key=lambda report: report.name))


async def collect_holders(connection: Connection) -> dict[str, str]:
    """Return the holders of credentials by public key; empty where `collect_reports` is.

    Raises `ConnectionLost`.
    """
    read = TypeAdapter(dict[str, str]).validate_json
    found = await _collect(connection, REPORT_SUBJECT, NAMES_REQUEST, read)
    return {key: name for names in found for key, name in names.items()}


async def collect_credentials(
    connection: Connection, revoked: Sequence[tuple[str, str]] = ()
) -> list[CredentialsReport]:
    """Return the credentials at each server, after `revoked` (kind, name) are revoked there.

    A server that does not answer gets a report with an `error`. Raises `OperatorError` if none
    answers.
    """
    names = {node.name for node in await collect_reports(connection)}
    names |= await retry_until_answered(connection, _find_replicas, ELECTION)
    asked = json.dumps({"revoke": revoked}).encode()

    def read(answer: bytes) -> CredentialsReport:
        return CredentialsReport.model_validate_json(zlib.decompress(answer))

    subject, patience = CREDENTIALS_SUBJECT, _CREDENTIALS_PATIENCE
    found = await _collect(connection, subject, asked, read, expected=len(names), patience=patience)
    if not found:
        raise OperatorError(
            f"no logbroker at {connection.servers} answers with its credentials: use the "
            "credential of an admin, or run this command on the broker's machine with --store-dir"
        )
    silent = "no answer; when it runs again, copy another server's credentials.json to it"
    for name in names - {one.name for one in found}:
        found.append(CredentialsReport(name=name, error=silent))
    return sorted(found, key=lambda report: report.name)


async def _find_replicas(connection: Connection) -> set[str]:
    """Return the names of the servers with a replica of a stream, also of those that are down."""
    infos = [await connection.api(f"STREAM.INFO.{one}") for one in await list_streams(connection)]
    clusters = [info.get("cluster") or {} for info in infos]
    peers = {peer["name"] for one in clusters for peer in one.get("replicas") or ()}
    return {one["leader"] for one in clusters if one.get("leader")} | peers


async def _collect(
    connection: Connection,
    subject: str,
    payload: bytes,
    read: Callable[[bytes], Answer],
    *,
    expected: int = 0,
    patience: float = _REPORT_PATIENCE,
) -> list[Answer]:
    """Return the answers of all subscribers: `expected` of them, or all that come if that is 0.

    `patience` is in seconds, for the next answer. Raises `ConnectionLost`.
    """
    found: list[Answer] = []
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    async with connection.open_inbox(arrived.put_nowait) as inbox:
        await connection.publish(subject, payload, reply=inbox)
        # a logbroker that has not answered by now is gone or stuck; its server's checks say which
        with suppress(ConnectionLost, Denied):
            while not expected or len(found) < expected:
                wait = _NEXT_REPORT if found and not expected else patience
                message = await connection.guard(arrived.get(), wait, subject)
                if (message.headers or {}).get("Status") == _NO_RESPONDERS:
                    break
                with suppress(ValidationError, zlib.error):  # the answer of some other program
                    found.append(read(message.data))
    return found
