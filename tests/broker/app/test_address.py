import pytest

from broker.app.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4222", Address("127.0.0.1", 4222)),
        ("[::1]:4222", Address("::1", 4222)),
        ("4222", Address("127.0.0.1", 4222)),
        (":4222", Address("0.0.0.0", 4222)),
        ("broker.example.net:0", Address("broker.example.net", 0)),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "x", "a:b", "a:70000", "::1:4222", "a:-1", "a:\u0661", "a\nb:1"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_a_listener_everywhere_is_reached_on_this_machine() -> None:
    assert str(Address("0.0.0.0", 0).reached_at(7)) == "127.0.0.1:7"
    assert not Address("0.0.0.0", 0).is_loopback
    assert Address("127.0.0.2", 0).is_loopback
    assert not Address("127.0.0.1.attacker.example", 0).is_loopback
