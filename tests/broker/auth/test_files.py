"""The credential store on disk: whole or as before, for one writer at a time, and refused rather than taken for an empty one."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.auth.files import CREDENTIALS, change_credentials, load_credentials
from broker.auth.store import EMPTY, CredentialStore
from tests.broker.auth.test_store import STORE


def test_a_store_that_was_written_is_read_and_replaced(tmp_path: Path) -> None:
    assert load_credentials(tmp_path) == EMPTY
    assert change_credentials(tmp_path / "store", lambda _: STORE) == (EMPTY, STORE)

    assert load_credentials(tmp_path / "store") == STORE
    assert change_credentials(tmp_path / "store", lambda store: store) == (STORE, STORE)
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "store" / CREDENTIALS).stat().st_mode & 0o777 == 0o640


def test_a_damaged_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text = STORE.as_json()[:-20]
    (tmp_path / CREDENTIALS).write_text(text)

    with pytest.raises(ConfigurationError, match=r"is damaged.*put back a copy"):
        load_credentials(tmp_path)
    with pytest.raises(ConfigurationError):
        change_credentials(tmp_path, lambda _: pytest.fail("a damaged store was changed"))
    assert (tmp_path / CREDENTIALS).read_text() == text


def test_a_change_of_somebody_else_is_waited_for(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:

        def change(store: CredentialStore) -> CredentialStore:
            waiting.append(pool.submit(change_credentials, tmp_path, lambda store: store))
            with pytest.raises(TimeoutError):
                waiting[0].result(0.2)
            return STORE

        waiting: list[Future[tuple[CredentialStore, CredentialStore]]] = []
        assert change_credentials(tmp_path, change) == (EMPTY, STORE)

        assert waiting[0].result() == (STORE, STORE)
