"""What a person is told of a connection."""

from collections.abc import Callable

import pytest

from broker.client.connection import BrokerAway, Connection


async def test_a_broker_that_is_not_there_is_named_without_its_password(
    free_port: Callable[[], int],
) -> None:
    port = free_port()
    connection = Connection([f"nats://user:secret@127.0.0.1:{port}"], "test")

    with pytest.raises(BrokerAway) as raised:
        await connection.once()

    assert f"no broker at nats://127.0.0.1:{port}: " in str(raised.value)
    assert "secret" not in str(raised.value)
