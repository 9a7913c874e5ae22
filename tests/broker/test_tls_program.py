"""`logbroker tls` and `logbroker run` together: secured from the first start, renewed while it runs."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.processes import wait_until
from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection
from broker.granting.certificates import Pki
from broker.wire.streams import STREAM
from tests.broker.conftest import StartBroker, call_logbroker

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


def test_a_certificate_made_for_a_broker_elsewhere_is_not_for_this_machine(tmp_path: Path) -> None:
    signed, authority = tmp_path / "signed", tmp_path / "authority/tls"
    words = ("tls", "init", "--elsewhere", "--store-dir")
    made = call_logbroker(*words, tmp_path / "authority", "--name", "localhost")
    assert made.returncode == 0, made.stderr

    by = (
        "--authority",
        authority / "authority.pem",
        "--authority-key",
        authority / "authority.key",
    )
    done = call_logbroker(*words, signed, "--name", "broker1.example.net", *by)

    assert done.returncode == 0, done.stderr
    names = Pki(signed / "tls").names()
    assert set(names) == {"broker1.example.net", "localhost", "127.0.0.1", "::1"}
    assert not (signed / "tls/authority.key").exists()
    nameless = call_logbroker(*words, tmp_path / "nameless")
    assert nameless.returncode == 2
    assert "--name" in nameless.stderr


def test_names_in_certificates_are_credentials_where_an_operator_says_so(
    start_broker: StartBroker, tmp_path: Path, logbroker: Callable[..., Any]
) -> None:
    store, carried = tmp_path / "store", tmp_path / "admin.toml"
    secured(store)
    added = logbroker(
        *("credentials", "add", "admin", "operator", "--with", "certificate"),
        *("--store-dir", store, "--output", carried),
    )
    assert added.returncode == 0, added.stderr
    broker = start_broker(store=store)
    ready = broker.wait_ready()

    status = logbroker("status", "--config", carried, "--server", ready["server"])
    assert status.returncode == 0, status.stderr
    assert STREAM in status.stdout
    other = tmp_path / "other.pem"
    assert logbroker("tls", "issue", "x", "--store-dir", store, "--output", other).returncode == 0
    unknown = Access(tls_ca=store / "tls" / "authority.pem", tls_cert=other)
    assert "Authorization Violation" in asyncio.run(gets_in(ready["server"], unknown))
    assert broker.end() == 0
