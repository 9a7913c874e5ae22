"""Who gets in follows from the book and the time, and nothing opens a broker but a person who says so."""

from datetime import timedelta

import pytest

from broker.granting.accounts import LOGS, RECEIVE, SHIP, Accounts
from broker.granting.admission import Admission, House, admit
from broker.granting.book import Book
from broker.granting.identity import OWN_NAME, Certificate, Identity, Kind, Password, Proof
from broker.granting.limits import Limits
from tests.broker.granting.test_book import BOOK, HASHED, HOUR, NOW, WEB_A, WEB_B, nkey

HOUSE = House(
    Password("logbroker", HASHED), Certificate(OWN_NAME), nkey("Z"), Limits(7, 8), Limits(9, 10)
)


def proofs(accounts: Accounts, name: str) -> list[Proof]:
    return [user.proof for one in accounts.accounts if one.name == name for user in one.users]


def test_without_a_book_everybody_gets_in_by_a_key_that_nobody_has() -> None:
    found = admit(Book(), HOUSE, NOW)

    assert (found.secured, found.accounts.anybody) == (False, nkey("Z").public)
    assert proofs(found.accounts, LOGS) == [HOUSE.own, HOUSE.anybody]


@pytest.mark.parametrize("book", [BOOK, BOOK.revoked([WEB_A, WEB_B], NOW)], ids=["two", "none"])
def test_with_a_book_nobody_gets_in_who_is_not_in_it(book: Book) -> None:
    found = admit(book, HOUSE, NOW)

    assert (found.secured, found.accounts.anybody) == (True, "")
    assert proofs(found.accounts, LOGS) == [HOUSE.own]
    assert proofs(found.accounts, SHIP) == [entry.identity.proof for entry in book.entries]


def test_a_former_proof_counts_until_its_end() -> None:
    book = BOOK.rotated({WEB_A: nkey("C")}, NOW, HOUR)

    before, after = (admit(book, HOUSE, NOW + lapse) for lapse in (timedelta(0), HOUR))

    assert proofs(before.accounts, SHIP) == [nkey("C"), nkey("A"), nkey("B")]
    assert proofs(after.accounts, SHIP) == [nkey("C"), nkey("B")]
    assert (before.until, after.until) == (NOW + HOUR, None)
    assert (before.credentials, after.credentials) == (2, 2)


def test_what_should_be_over_and_is_not_is_looked_at_again_in_a_while_and_not_at_once() -> None:
    found = admit(BOOK.rotated({WEB_A: nkey("C")}, NOW, HOUR), HOUSE, NOW)

    lefts = [found.seconds_left(NOW + lapse) for lapse in (timedelta(0), HOUR, 2 * HOUR)]

    assert lefts == [3600, 5, 5]
    assert admit(BOOK, HOUSE, NOW).seconds_left(NOW) is None


def test_where_names_in_certificates_count_logbroker_comes_by_its_own() -> None:
    book = BOOK.added([Identity(Kind.ADMIN, "ops", Certificate("ops"))], NOW)

    found: Admission = admit(book, HOUSE, NOW)

    assert found.mapped
    assert proofs(found.accounts, LOGS) == [HOUSE.name, Certificate("ops")]


def test_hosts_and_receivers_are_limited_and_admins_are_not() -> None:
    limits = {one.name: one.limits for one in admit(BOOK, HOUSE, NOW).accounts.accounts}

    assert (limits[SHIP], limits[RECEIVE], limits[LOGS]) == (HOUSE.hosts, HOUSE.receivers, None)
