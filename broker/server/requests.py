"""Receives requests to logbroker, answers those about credentials, and counts links to sites."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from broker.auth.credentials import CredentialError, CredentialKind, Holder
from broker.auth.files import change_credentials, load_credentials
from broker.report import CredentialsReport, CredentialsRequest
from nats_logship.app.exits import OperatorError
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message

_PAUSE = 0.5  # seconds until it subscribes again after a lost connection
_FLUSH = 3600  # seconds; a connection without answers is lost long before
_PATIENCE = 1.0  # seconds for the server's answer about its leaf nodes
_ACKNOWLEDGES = "$JS.ACK."
_LEAF_NODES = "$SYS.REQ.SERVER.PING.LEAFZ"

Handler = Callable[[Message], Awaitable[None]]


async def listen(
    connection: Connection, handlers: Mapping[str, Handler], listens: asyncio.Event, queue: str = ""
) -> None:
    """Call the handler of a subject for each request until cancelled, also after a lost connection.

    With a `queue`, each request reaches one of the brokers of a cluster. `listens` is set once the
    server has the subscriptions.
    """

    async def take(handle: Handler, message: Message) -> None:
        # another site may have a consumer push lines here; their reply subject acknowledges them
        if message.reply and not message.reply.startswith(_ACKNOWLEDGES):
            with suppress(ConnectionLost):
                await handle(message)

    while True:
        client = await connection.client()
        with suppress(ConnectionLost):
            for subject, handle in handlers.items():
                await connection.subscribe(subject, partial(take, handle), queue)
            await connection.guard(client.flush(_FLUSH), _FLUSH)
            listens.set()
            await asyncio.wait([client.lost])
        await asyncio.sleep(_PAUSE)


async def answer_credentials(
    folder: Path, name: str, reload: Callable[[], Awaitable[None]], message: Message
) -> bytes:
    """Revoke the credentials that an admin names, and return the answer of the broker `name`.

    Only admins can ask: the subject is in the account of the streams. `reload` puts the changed
    credentials in force. The answer is a `CredentialsReport`, compressed with zlib.
    """
    error = ""
    try:
        request = CredentialsRequest.model_validate_json(message.data or b"{}")
        if request.revoke:
            holders = [Holder(CredentialKind(kind), name) for kind, name in request.revoke]
            await asyncio.to_thread(change_credentials, folder, lambda store: store.revoke(holders))
            await reload()
    except (ValidationError, CredentialError, OperatorError) as failure:
        error = str(failure)
    try:
        report = await asyncio.to_thread(report_credentials, folder, name, error)
    except OperatorError as failure:
        report = CredentialsReport(name=name, error=error or str(failure))
    # uncompressed, thousands of credentials would exceed the largest message
    return zlib.compress(report.model_dump_json().encode())


def report_credentials(folder: Path, name: str = "", error: str = "") -> CredentialsReport:
    """Return the credentials of a broker's directory; raises `OperatorError`."""
    store = load_credentials(folder)
    return CredentialsReport(
        name=name,
        secured=store.is_secured,
        credentials=[one.model_dump(mode="json") for one in store.credentials],
        error=error,
    )


async def count_site_links(connection: Connection, server: str) -> int | None:
    """Return the number of remote sites that a server is connected to; None without an answer."""
    question = json.dumps({"server_name": server, "exact_match": True}).encode()
    try:
        answer = await connection.request(_LEAF_NODES, question, patience=_PATIENCE)
        leaves = json.loads(answer.data)["data"].get("leafs") or ()
    except (ConnectionLost, Rejected, ValueError, KeyError):
        return None
    return sum(bool(one.get("is_spoke")) for one in leaves)
