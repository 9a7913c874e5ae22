"""The door of a running broker: opened only by what a person wrote, never by a book that is broken or gone."""

from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.granting.bookfile import BOOK, held_book
from broker.server.door import Door
from broker.settings import BrokerSettings
from tests.broker.granting.test_book import BOOK as WRITTEN
from tests.broker.granting.test_book import NOW, WEB_A, WEB_B

SETTINGS = BrokerSettings()


@pytest.fixture
def door(tmp_path: Path) -> Door:
    with held_book(tmp_path) as held:
        held.write(WRITTEN)
    door = Door(tmp_path)
    assert door.look(SETTINGS, NOW).secured
    return door


def test_without_a_book_it_is_open_and_a_first_book_closes_it(tmp_path: Path) -> None:
    door = Door(tmp_path)
    assert not door.look(SETTINGS, NOW).secured

    with held_book(tmp_path) as held:
        held.write(WRITTEN)

    assert door.look(SETTINGS, NOW).secured


def test_a_book_that_is_gone_does_not_open_it(door: Door, tmp_path: Path) -> None:
    (tmp_path / BOOK).unlink()

    with pytest.raises(ConfigurationError, match="is gone; put back a copy"):
        door.look(SETTINGS, NOW)


def test_a_book_that_is_damaged_does_not_open_it(door: Door, tmp_path: Path) -> None:
    (tmp_path / BOOK).write_text("{}")

    with pytest.raises(ConfigurationError, match="is damaged"):
        door.look(SETTINGS, NOW)


def test_who_says_so_opens_it(door: Door, tmp_path: Path) -> None:
    with held_book(tmp_path) as held:
        held.write(WRITTEN.revoked([WEB_A, WEB_B], NOW).opened())

    found = door.look(SETTINGS, NOW)

    assert (found.secured, found.credentials, found.revision) == (False, 0, 3)
    assert found.accounts.anybody


def test_it_is_known_whether_the_book_has_changed_since(door: Door, tmp_path: Path) -> None:
    admission = door.look(SETTINGS, NOW)
    assert not door.is_behind(admission)

    with held_book(tmp_path) as held:
        held.write(WRITTEN.revoked([WEB_A], NOW))
    assert door.is_behind(admission)
    (tmp_path / BOOK).write_text("{}")
    assert door.is_behind(admission)


def test_two_processes_have_secrets_of_their_own(tmp_path: Path) -> None:
    one, other = Door(tmp_path), Door(tmp_path)

    assert one.own.user == other.own.user == "logbroker"
    assert one.own.password != other.own.password
    assert one.own.password not in repr(one.own) + repr(one.look(SETTINGS, NOW))
