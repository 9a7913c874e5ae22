"""Addresses of the broker are checked before anything is sent."""

import pytest

from broker.client.access import check_servers


def test_addresses_that_a_client_could_try_are_taken_several_in_one_text_too() -> None:
    some = ("nats://127.0.0.1:4222", "tls://broker1:4222", "nats://[::1]:4222", "b1:4222", "b1")

    assert check_servers(some) == check_servers((", ".join(some),)) == some


@pytest.mark.parametrize(
    "server", ["http://b1:4222", "nats://me:s3cret@b1:port", "nats://[::1", "nats://", ""]
)
def test_an_address_that_none_could_is_refused_without_a_password(server: str) -> None:
    with pytest.raises(ValueError, match="is no address of a NATS server; write nats://") as raised:
        check_servers(("nats://127.0.0.1:4222", server))

    assert "s3cret" not in str(raised.value)
