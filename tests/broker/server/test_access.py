"""The access of a running broker: opened only by what a person wrote, never by a credential store that is broken or gone."""

from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.auth.store_file import CREDENTIALS, held_credentials
from broker.server.access import ServerAccess
from broker.settings import BrokerSettings
from tests.broker.auth.test_store import NOW, STORE, WEB_A, WEB_B

SETTINGS = BrokerSettings()


@pytest.fixture
def access(tmp_path: Path) -> ServerAccess:
    with held_credentials(tmp_path) as held:
        held.write(STORE)
    access = ServerAccess(tmp_path)
    assert access.look(SETTINGS, NOW).secured
    return access


def test_without_a_store_it_is_open_and_a_first_book_closes_it(tmp_path: Path) -> None:
    access = ServerAccess(tmp_path)
    assert not access.look(SETTINGS, NOW).secured

    with held_credentials(tmp_path) as held:
        held.write(STORE)

    assert access.look(SETTINGS, NOW).secured


def test_a_store_that_is_gone_does_not_open_it(access: ServerAccess, tmp_path: Path) -> None:
    (tmp_path / CREDENTIALS).unlink()

    with pytest.raises(ConfigurationError, match="is gone; put back a copy"):
        access.look(SETTINGS, NOW)


def test_a_store_that_is_damaged_does_not_open_it(access: ServerAccess, tmp_path: Path) -> None:
    (tmp_path / CREDENTIALS).write_text("{}")

    with pytest.raises(ConfigurationError, match="is damaged"):
        access.look(SETTINGS, NOW)


def test_who_says_so_opens_it(access: ServerAccess, tmp_path: Path) -> None:
    with held_credentials(tmp_path) as held:
        held.write(STORE.revoked([WEB_A, WEB_B]).opened())

    found = access.look(SETTINGS, NOW)

    assert (found.secured, found.credentials, found.revision) == (False, 0, 3)
    assert found.accounts.anybody


def test_two_processes_have_secrets_of_their_own(tmp_path: Path) -> None:
    one, other = ServerAccess(tmp_path), ServerAccess(tmp_path)

    assert one.own.nkey_seed != other.own.nkey_seed
    assert one.own.nkey_seed not in repr(one.own) + repr(one.look(SETTINGS, NOW))
