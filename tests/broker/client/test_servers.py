"""Addresses of the broker are checked before anything is sent."""

import pytest

from broker.client.access import check_servers, looks_like_server


@pytest.mark.parametrize(
    "server",
    [
        "nats://127.0.0.1:4222",
        "tls://broker1:4222",
        "nats://[::1]:4222",
        "broker1:4222",
        "broker1",
    ],
)
def test_an_address_that_a_client_could_try_is_taken(server: str) -> None:
    assert check_servers((server,)) == (server,)


@pytest.mark.parametrize(
    "server",
    [
        "http://broker1:4222",
        "nats://broker1:port",
        "nats://[::1",
        "nats://",
        "",
    ],
)
def test_an_address_that_none_could_is_refused_with_the_form_to_write(server: str) -> None:
    with pytest.raises(ValueError, match=r"address|host"):
        check_servers(("nats://127.0.0.1:4222", server))


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="broker1:port") as raised:
        check_servers(("nats://user:secret@broker1:port",))

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("nats://b2:4222", True),
        ("b2:4222", True),
        ("lag", False),
        ("backups/today", False),
        ("/srv/backups:4222", False),
    ],
)
def test_a_command_s_own_argument_is_not_taken_for_one_more_server(word: str, is_one: bool) -> None:
    assert looks_like_server(word) is is_one


def test_several_addresses_may_stand_in_one_text_as_nats_clients_take_them() -> None:
    taken = check_servers(("nats://b1:4222, b2:4222", "tls://b3"))

    assert taken == ("nats://b1:4222", "b2:4222", "tls://b3")
