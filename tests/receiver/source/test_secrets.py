"""Secrets that stand in files: taken from there, and complaints that show none."""

from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from receiver.source.secrets import with_secrets

DEFAULT = "nats://here:4222"


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(" s3cret\r\nnot this\n")

    given = with_secrets({"user": "me", "PasswordFile": str(path)}, DEFAULT)

    assert given == {"user": "me", "password": " s3cret"}


@pytest.mark.parametrize(
    ("servers", "shown"),
    [
        ({}, "nats://t0ken@here:4222"),
        ({"servers": "tls://a:1, b:2"}, "tls://t0ken@a:1,nats://t0ken@b:2"),
    ],
)
def test_a_token_is_shown_to_every_address(
    servers: dict[str, str], shown: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("t0ken\n")

    assert with_secrets({**servers, "tokenFile": str(path)}, DEFAULT) == {"servers": shown}


@pytest.mark.parametrize(
    ("given", "content", "complaint"),
    [
        ({"passwordFile": "{}", "password": "x"}, b"s3cret", "two ways"),
        ({"tokenFile": "{}", "user": "me"}, b"s3cret", "two ways to say who"),
        ({"passwordFile": "{}"}, b"\n", "is empty"),
        ({"passwordFile": "{}"}, b"\xff\xfes3cret", "holds no text"),
        ({"passwordFile": "{}.away"}, b"", "No such file"),
        ({"tokenFile": "{}"}, b"s3cret/@", "cannot stand in an address"),
        ({"tokenFile": "{}", "servers": "nats://u:s3cret@a"}, b"t", "says already who"),
    ],
)
def test_what_cannot_be_taken_is_said_without_what_it_holds(
    given: dict[str, str], content: bytes, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=complaint) as raised:
        with_secrets({key: value.format(path) for key, value in given.items()}, DEFAULT)

    assert "s3cret" not in str(raised.value)
