"""What admins ask of a running broker's credential store over NATS: the list, and that credentials be revoked.

Only the account of the streams hears the question, in which hosts, receivers and monitors are not. What if we die here? The
store is written or not, and the same request again says which.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import ValidationError

from broker.app.exits import OperatorError
from broker.auth.files import held_credentials, load_credentials
from broker.auth.store import CredentialKind, Holder, InvalidStore
from broker.client.connection import Message
from broker.report import CredentialsReport, CredentialsRequest


async def credentials_answer(
    folder: Path, name: str, reload: Callable[[], Awaitable[None]], message: Message
) -> bytes:
    """Do what a message asks, and return the answer of the broker `name`, compressed; `reload` takes over a changed store."""
    error = ""
    try:
        request = CredentialsRequest.model_validate_json(message.data or b"{}")
        if request.revoke:
            await asyncio.to_thread(_revoke, folder, request)
            await reload()
    except (ValidationError, InvalidStore, OperatorError) as failure:
        error = str(failure)
    try:
        report = await asyncio.to_thread(report_of, folder, name, error)
    except OperatorError as failure:
        report = CredentialsReport(name=name, error=error or str(failure))
    # thousands of credentials would not fit into a message as they are
    return zlib.compress(report.model_dump_json().encode())


def _revoke(folder: Path, request: CredentialsRequest) -> None:
    holders = [Holder(CredentialKind(kind), name) for kind, name in request.revoke]
    with held_credentials(folder) as held:
        held.write(held.store.revoked(holders))


def report_of(folder: Path, name: str = "", error: str = "") -> CredentialsReport:
    """Return the credentials of a broker's directory; raises `OperatorError`."""
    store = load_credentials(folder)
    found = [one.model_dump(mode="json") for one in store.credentials]
    return CredentialsReport(name=name, secured=store.secured, credentials=found, error=error)
