"""What clients of every kind get from the small HTTP server, and what they cannot do to it."""

import asyncio
import socket
from contextlib import AbstractAsyncContextManager

import pytest

from nats_logship.app.address import Address
from nats_logship.app.exits import OperatorError
from nats_logship.app.pages import Page, page_server
from tests.support.ports import free_port


async def test_an_address_may_come_with_the_network_and_a_port_in_use_is_a_wrong_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        in_use = Address("127.0.0.1", taken.getsockname()[1])
        for address, code in ((Address("192.0.2.1", 9464), 1), (in_use, 78)):
            with pytest.raises(OperatorError, match="check --listen") as refused:
                async with page_server(address, {}):
                    pass
            assert refused.value.code == code


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /page?x=1 HTTP/1.0\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /page HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /page\r\n\r\n", b"400"),
        (b"GET /page HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n", b"400"),
    ],
)
async def test_each_request_gets_its_status(request_: bytes, status: bytes) -> None:
    port = free_port()
    async with opened(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        try:
            answer = await reader.read()
        except ConnectionError:  # it was not even read to its end
            answer = b"HTTP/1.1 400"
        writer.close()

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.endswith(b"well\n") == (status == b"200")


async def test_silent_clients_keep_others_out_for_a_moment_only() -> None:
    port = free_port()
    async with opened(port, body=b"x" * (64 << 20), patience=0.5):
        clients = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(48)]
        for _, writer in clients[:40]:  # these read no answer, the others ask nothing
            writer.write(b"GET /page HTTP/1.1\r\n\r\n")

        async with asyncio.timeout(20):
            while not await answers(port):  # noqa: ASYNC110 - others let go at some time
                await asyncio.sleep(0.05)

        for _, writer in clients:
            writer.transport.abort()


def opened(
    port: int, body: bytes = b"well\n", patience: float = 5.0
) -> AbstractAsyncContextManager[None]:
    pages = {"/page": lambda: Page(200, body)}
    return page_server(Address("127.0.0.1", port), pages, patience=patience)


async def answers(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        return (await reader.read()).startswith(b"HTTP/1.1 404")
    except ConnectionError:
        return False
    finally:
        writer.close()
