"""A pull whose final status comes before its last message, as in a cluster for large messages."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.client.pulling import pull
from tests.nats_logship.client.served import INFO, served

CONSUMER = "LOGS.receiver-p0"
ALL = "409 Batch Completed\r\nNats-Pending-Messages: 0"
TWO_OF_TEN = "409 Batch Completed\r\nNats-Pending-Messages: 8"


class Broker:
    """Answers each pull with messages, by their numbers, and statuses, as `answers` says."""

    def __init__(self) -> None:
        self.answers: Sequence[int | str] = ()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        sids: dict[bytes, bytes] = {}
        async for line in reader:
            match line.split():
                case [b"PING"]:
                    writer.write(b"PONG\r\n")
                case [b"SUB", subject, *_, sid]:
                    sids[subject.removesuffix(b".*")] = sid
                case [b"PUB", _, inbox, _]:
                    sid = next(sid for name, sid in sids.items() if inbox.startswith(name))
                    for answer in self.answers:
                        writer.write(_message(inbox, sid, answer))


def _message(inbox: bytes, sid: bytes, answer: int | str) -> bytes:
    if isinstance(answer, int):
        reply = f"$JS.ACK.LOGS.receiver-p0.1.{answer}.{answer}.1.0".encode()
        return b"MSG logs.p0.web01 %b %b 6\r\na line\r\n" % (sid, reply)
    head = f"NATS/1.0 {answer}\r\n\r\n".encode()
    return b"HMSG %b %b %d %d\r\n%b\r\n" % (inbox, sid, len(head), len(head), head)


@pytest.fixture
async def broker() -> AsyncIterator[tuple[Broker, Connection]]:
    broker = Broker()
    async with served(broker.serve) as where:
        connection = Connection([f"nats://{where}"], "puller")
        yield broker, connection
        await connection.close()


@pytest.mark.parametrize("most", [1, 3])
async def test_a_pull_waits_for_messages_that_a_status_overtakes(
    broker: tuple[Broker, Connection], most: int
) -> None:
    numbers = list(range(1, most + 1))
    for place in range(most + 1):
        broker[0].answers = [*numbers[:place], ALL, *numbers[place:]]

        pulled = await pull(broker[1], CONSUMER, most, 1_000_000)

        assert [delivery.sequence for delivery, _ in pulled.messages] == numbers


async def test_a_status_ends_a_pull_that_has_all_messages_it_counts(
    broker: tuple[Broker, Connection],
) -> None:
    server, connection = broker
    for answers, count in (([1, 2, TWO_OF_TEN], 2), ([1, TWO_OF_TEN, 2], 2), (["404"], 0)):
        server.answers = answers
        assert len((await pull(connection, CONSUMER, 10, 1_000_000)).messages) == count
    server.answers = [1, "500 Odd"]
    with pytest.raises(ConnectionLost, match="500 Odd"):
        await pull(connection, CONSUMER, 10)
