"""New secrets prove what the book keeps of them, and nothing in the book gives one away."""

import bcrypt
import pytest

from broker.client.nkey import user_key
from broker.granting.book import Book, Key
from broker.granting.identity import Certificate, Identity, Kind, Nkey, Password
from broker.granting.issue import Way, issue
from tests.broker.granting.test_book import NOW

WEB01 = Key(Kind.HOST, "web01.example.net")


def test_a_key_is_proved_by_its_seed() -> None:
    made = issue(Way.NKEY, WEB01)

    assert made.proof == Nkey(user_key(made.secret["nkey_seed"]).public)


def test_a_password_is_kept_as_a_hash_that_nats_server_reads() -> None:
    made = issue(Way.PASSWORD, WEB01)

    assert isinstance(made.proof, Password)
    assert made.secret["user"] == made.proof.user == "host/web01.example.net"
    assert bcrypt.checkpw(made.secret["password"].encode(), made.proof.hashed.encode())
    assert len(made.secret["password"]) == 32


def test_a_users_next_password_goes_by_another_name() -> None:
    taken = {"host/web01.example.net", "host/web01.example.net/2"}

    assert issue(Way.PASSWORD, WEB01, taken=taken).secret["user"] == "host/web01.example.net/3"


@pytest.mark.parametrize(("subject", "name"), [("", "web01.example.net"), ("CN=x", "CN=x")])
def test_a_certificate_proves_itself(subject: str, name: str) -> None:
    made = issue(Way.CERTIFICATE, WEB01, subject)

    assert (made.proof, made.secret) == (Certificate(name), {})


@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.SITE])
def test_what_is_issued_can_stand_in_a_book(way: Way, kind: Kind) -> None:
    made = issue(way, Key(kind, "x-1"))

    book = Book().added([Identity(kind, "x-1", made.proof)], NOW)

    assert all(
        secret not in repr((book, made)) for secret in made.secret.values() if "/" not in secret
    )


def test_no_two_secrets_are_alike() -> None:
    assert len({issue(Way.NKEY, WEB01).secret["nkey_seed"] for _ in range(100)}) == 100
