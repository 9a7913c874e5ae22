"""The credential store on disk: whole or as before, for one writer at a time, and refused rather than taken for an empty one."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, OperatorError
from broker.auth.files import CREDENTIALS, held_credentials, load_credentials
from broker.auth.store import EMPTY, CredentialStore
from tests.broker.auth.test_store import STORE

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


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


@ONLY_ROOT
@pytest.mark.parametrize("kind", ["hard link", "renamed"])
def test_root_gives_no_file_of_its_own_away(tmp_path: Path, kind: str) -> None:
    store, victim = tmp_path / "store", tmp_path / "shadow"
    store.mkdir()
    victim.write_text("root's")
    if kind == "hard link":
        os.link(victim, store / "credentials.lock")
    else:  # a file of root's in the store itself
        victim = victim.rename(store / "credentials.lock")
    os.chown(store, 12345, 12346)

    with suppress(OperatorError), held_credentials(store):
        pass

    assert (victim.stat().st_uid, victim.read_text()) == (0, "root's")
