"""`logbroker tls` and `logbroker run` together: secured from the first start, renewed while it runs."""

import asyncio
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection
from broker.wire.streams import STREAM
from tests.broker.conftest import StartBroker, call_logbroker
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def secured(store: Path) -> None:
    made = call_logbroker("tls", "init", "--store-dir", store)
    assert made.returncode == 0, made.stderr


async def gets_in(url: str, access: Access) -> str:
    connection = Connection([url], "test", access=access)
    try:
        await connection.once()
        return str((await connection.api(f"STREAM.INFO.{STREAM}"))["config"]["name"])
    except BrokerAway as error:
        return str(error)
    finally:
        await connection.close()


def shown(url: str) -> bytes | None:
    """Return the certificate that the server shows now, after its hello in the clear."""
    there = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((there.hostname, there.port), 10) as line:
        while not line.recv(4096).endswith(b"\n"):
            continue
        with context.wrap_socket(line, server_hostname="localhost") as secured_line:
            return secured_line.getpeercert(binary_form=True)


def test_a_broker_with_certificates_talks_to_nobody_in_the_clear_and_takes_new_ones_without_a_restart(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    secured(store)
    broker = start_broker(store=store)
    ready = broker.wait_ready()
    trusting = Access(tls_ca=store / "tls" / "authority.pem")

    assert asyncio.run(gets_in(ready["server"], trusting)) == STREAM
    stranger = asyncio.run(gets_in(ready["server"], Access(tls_first=False)))
    assert "certificate" in stranger

    async def through_it_all() -> None:
        connection = Connection([ready["server"]], "test", access=trusting)
        try:
            client = await connection.once()
            before = await asyncio.to_thread(shown, ready["server"])
            renewed = await asyncio.to_thread(call_logbroker, "tls", "renew", "--store-dir", store)
            assert renewed.returncode == 0, renewed.stderr
            await asyncio.to_thread(
                wait_until,
                "the new certificate is shown",
                lambda: shown(ready["server"]) != before,
                20,
            )
            assert client.is_connected  # nobody was sent away
            await connection.api(f"STREAM.INFO.{STREAM}")
        finally:
            await connection.close()

    asyncio.run(through_it_all())
    assert asyncio.run(gets_in(ready["server"], trusting)) == STREAM
    assert broker.end() == 0
