"""The book says who gets in at a time, and takes nothing that nats-server would refuse or mistake for another."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.client.nkey import new_seed, user_key
from broker.granting.book import Book, InvalidEntry, Key
from broker.granting.identity import OWN_NAME, Certificate, Identity, Kind, Nkey, Password, Proof

NOW = datetime(2026, 11, 21, 17, tzinfo=UTC)
HOUR = timedelta(hours=1)
HASHED = "$2b$04$" + "a" * 53


def nkey(sign: str) -> Nkey:
    return Nkey(user_key(new_seed(sign.encode() * 32)).public)


def host(name: str, proof: Proof | None = None) -> Identity:
    return Identity(Kind.HOST, name, proof or nkey(name[-1].upper()))


WEB_A, WEB_B = Key(Kind.HOST, "web-a"), Key(Kind.HOST, "web-b")
BOOK = Book().added([host("web-a"), host("web-b")], NOW)


def test_a_book_is_open_until_the_first_credential_and_counts_its_changes() -> None:
    assert (Book().secured, Book().revision) == (False, 0)
    assert (BOOK.secured, BOOK.revision) == (True, 1)
    assert BOOK.identities(NOW) == (host("web-a"), host("web-b"))


def test_a_book_without_its_last_credential_lets_in_nobody_until_it_is_opened() -> None:
    empty = BOOK.revoked([WEB_A, WEB_B], NOW)

    assert (empty.secured, empty.identities(NOW)) == (True, ())
    assert not empty.opened().secured
    assert empty.opened().revision == 3


def test_a_book_with_credentials_is_not_opened() -> None:
    with pytest.raises(InvalidEntry, match=r"other credentials are left \(1\)"):
        BOOK.revoked([WEB_A], NOW).opened()


def test_both_proofs_are_good_until_the_grace_is_over() -> None:
    turned = BOOK.rotated({WEB_A: nkey("C")}, NOW, HOUR)

    before, after = (turned.identities(NOW + lapse) for lapse in (HOUR - HOUR / 60, HOUR))

    assert before == (host("web-a", nkey("C")), host("web-a", nkey("A")), host("web-b"))
    assert after == (host("web-a", nkey("C")), host("web-b"))
    assert turned.next_end(NOW) == NOW + HOUR
    assert turned.next_end(NOW + HOUR) is None


def test_a_rotation_without_grace_ends_all_former_proofs_at_once() -> None:
    twice = BOOK.rotated({WEB_A: nkey("C")}, NOW, HOUR).rotated(
        {WEB_A: nkey("D")}, NOW, timedelta(0)
    )

    assert twice.identities(NOW) == (host("web-a", nkey("D")), host("web-b"))
    assert twice.next_end(NOW) is None


def test_what_is_over_leaves_the_book_at_its_next_change() -> None:
    turned = BOOK.rotated({WEB_A: nkey("C")}, NOW, HOUR)

    changed = turned.revoked([WEB_B], NOW + HOUR)

    assert changed.entries[0].former == ()


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        pytest.param(host("web-a"), "host web-a has a credential already", id="known"),
        pytest.param(host("a b", nkey("C")), "holds white space", id="host"),
        pytest.param(host("a*", nkey("C")), "holds white space, '*'", id="wildcard"),
        pytest.param(Identity(Kind.ADMIN, "../x", nkey("C")), "admin name", id="admin"),
        pytest.param(Identity(Kind.RECEIVER, "", nkey("C")), "receiver name", id="no name"),
        pytest.param(
            Identity(Kind.HOST, "c", nkey("C"), (3,)), "a host has no partitions", id="host's"
        ),
        pytest.param(
            Identity(Kind.RECEIVER, "c", nkey("C"), (-1,)),
            "partitions count from 0",
            id="partition",
        ),
        pytest.param(host("c", Nkey("SUAxyz")), "no proof that can be read", id="a seed"),
        pytest.param(host("c", Nkey(nkey("C").public[:-1] + "A")), "no proof", id="a damaged key"),
        pytest.param(host("c", Password("c", "s3cret")), "no proof", id="a password itself"),
        pytest.param(host("c", Certificate("")), "no proof", id="no subject"),
        pytest.param(host("c", Certificate(OWN_NAME)), "no proof", id="the broker's own name"),
        pytest.param(host("c", nkey("A")), "the proof of two credentials", id="key of another"),
    ],
)
def test_what_will_not_do_is_refused_with_the_reason(identity: Identity, words: str) -> None:
    with pytest.raises(InvalidEntry, match=r"^[^\n]*$") as raised:
        BOOK.added([identity], NOW)

    assert words in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_passwords_and_certificates_do_not_go_together() -> None:
    both = [host("c", Password("x", HASHED)), host("d", Certificate("y"))]

    with pytest.raises(InvalidEntry, match="do not go together"):
        Book().added(both, NOW)


def test_one_name_may_be_a_hosts_and_a_receivers() -> None:
    book = BOOK.added([Identity(Kind.RECEIVER, "web-a", nkey("C"))], NOW)

    assert len(book.found([WEB_A, Key(Kind.RECEIVER, "web-a")])) == 2


def test_whom_nobody_knows_is_named() -> None:
    unknown = [Key(Kind.HOST, f"x{number}") for number in range(5)]

    with pytest.raises(InvalidEntry, match="no credential of host x0, host x1, host x2 and 2 more"):
        BOOK.revoked(unknown, NOW)
    with pytest.raises(InvalidEntry, match="host web-a is there twice"):
        BOOK.revoked([WEB_A, WEB_A], NOW)


def test_a_receiver_called_like_the_key_of_another_is_refused() -> None:
    book = BOOK.added([Identity(Kind.RECEIVER, "r0", nkey("C"))], NOW)

    with pytest.raises(
        InvalidEntry, match=r"receiver r0 and receiver U.*hear each other's answers"
    ):
        book.added([Identity(Kind.RECEIVER, nkey("C").public, nkey("D"))], NOW)


def test_a_receiver_may_be_called_like_its_own_user() -> None:
    hashed = "$2a$04$" + "a" * 53

    book = BOOK.added([Identity(Kind.RECEIVER, "r0", Password("r0", hashed))], NOW)

    assert len(book.entries) == 3
