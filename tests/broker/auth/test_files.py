"""The credential store on disk: whole or as before, for one writer at a time, and refused rather than taken for an empty one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.auth.files import CREDENTIALS, held_credentials, load_credentials
from broker.auth.store import EMPTY, CredentialStore
from tests.broker.auth.test_store import STORE


def test_a_store_that_was_written_is_read_and_replaced(tmp_path: Path) -> None:
    assert load_credentials(tmp_path) == EMPTY
    with held_credentials(tmp_path / "store") as held:
        assert held.store == EMPTY
        held.write(STORE)

    assert load_credentials(tmp_path / "store") == STORE
    with held_credentials(tmp_path / "store") as held:
        assert held.store == STORE
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "store" / CREDENTIALS).stat().st_mode & 0o777 == 0o640


def test_a_damaged_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text = STORE.as_json()[:-20]
    (tmp_path / CREDENTIALS).write_text(text)

    with pytest.raises(ConfigurationError, match=r"is damaged.*put back a copy"):
        load_credentials(tmp_path)
    with pytest.raises(ConfigurationError), held_credentials(tmp_path):
        pytest.fail("a damaged store was held")
    assert (tmp_path / CREDENTIALS).read_text() == text


def test_a_store_that_somebody_else_holds_is_waited_for(tmp_path: Path) -> None:
    def held_by_another() -> CredentialStore:
        with held_credentials(tmp_path) as held:
            return held.store

    with ThreadPoolExecutor() as pool, held_credentials(tmp_path) as held:
        waiting = pool.submit(held_by_another)
        held.write(STORE)

    assert waiting.result() == STORE
