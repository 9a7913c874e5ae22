"""Subjects that hold white space which the protocol does not take for the end of a word."""

import asyncio

import pytest

from broker.client.connection import Connection, Message

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("space", ["\x0b", "\x0c", "\x1c", "\x85", "\xa0"])
async def test_a_message_on_an_odd_subject_deafens_no_client(logs_url: str, space: str) -> None:
    subject = f"odd.a{space}b"
    heard: asyncio.Queue[Message] = asyncio.Queue()
    listener, speaker = Connection([logs_url], "listener"), Connection([logs_url], "speaker")
    try:
        await speaker.once()
        await listener.once()
        await listener.subscribe("odd.*", heard.put)
        await (await listener.client()).flush()
        for payload in (b"first", b"second"):
            await speaker.publish(subject, payload)

        async with asyncio.timeout(30):
            messages = [await heard.get() for _ in range(2)]

        assert [(one.subject, one.data) for one in messages] == [
            (subject, b"first"),
            (subject, b"second"),
        ]
    finally:
        await listener.close()
        await speaker.close()
