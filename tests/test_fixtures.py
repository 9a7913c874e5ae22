"""The shared fixtures do what the other tests take for granted."""

import pytest

from broker.bucket import read
from broker.connecting.connection import Connection, Rejected
from broker.topology import CONFIG_BUCKET, PARTITIONS_KEY

pytestmark = pytest.mark.nats


async def test_a_fresh_address_sees_nothing_of_another_tests_streams(
    logs_url: str, nats_url: str
) -> None:
    shared = Connection([nats_url], "test")
    own = Connection([logs_url], "test")
    try:
        entry = await read(own, CONFIG_BUCKET, PARTITIONS_KEY)
        assert entry is not None
        assert entry.value == b"2"
        with pytest.raises(Rejected):
            await shared.api("STREAM.INFO.LOGS")
    finally:
        await own.close()
        await shared.close()
