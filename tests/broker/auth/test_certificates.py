"""The certificates of a store: for the store's owner, whoever makes them, and through nobody's link."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.auth.certificates import Pki, ends_of

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def init(store: Path) -> Pki:
    pki = Pki(store / "tls")
    pki.sign(pki.found("tests", NOW), ["localhost"], NOW)
    return pki


@ONLY_ROOT
def test_what_root_makes_belongs_to_the_stores_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)

    pki = init(tmp_path)
    pki.sign(pki.read_authority(), ["localhost"], NOW + timedelta(days=1))

    found = {path.name: path.stat() for path in (pki.folder, *pki.folder.iterdir())}
    assert {(one.st_uid, one.st_gid) for one in found.values()} == {(12345, 12346)}
    assert {name: one.st_mode & 0o777 for name, one in found.items()} == {
        "tls": 0o750,
        "authority.key": 0o600,
        "authority.pem": 0o644,
        "broker.pem": 0o600,
    }


@ONLY_ROOT
def test_root_makes_no_certificate_in_a_folder_that_a_link_names(tmp_path: Path) -> None:
    store, victim = tmp_path / "store", tmp_path / "victim"
    store.mkdir()
    victim.mkdir()
    (store / "tls").symlink_to(victim)
    os.chown(store, 12345, 12346)

    with pytest.raises(OperatorError, match="link"):
        init(store)

    assert list(victim.iterdir()) == []


@ONLY_ROOT
def test_root_signs_with_no_key_that_a_link_names(tmp_path: Path) -> None:
    other = init(tmp_path / "other")
    (tmp_path / "store").mkdir()
    os.chown(tmp_path / "store", 12345, 12346)
    pki = init(tmp_path / "store")
    for path in (pki.authority, pki.authority_key):
        path.unlink()
        path.symlink_to(other.folder / path.name)

    with pytest.raises(OperatorError, match="symbolic link"):
        pki.read_authority()
    with pytest.raises(OperatorError, match="symbolic link"):
        pki.read_certificate()


def test_no_pipe_in_a_certificates_place_is_waited_for(tmp_path: Path) -> None:
    pki = init(tmp_path)
    pki.broker.unlink()
    os.mkfifo(pki.broker)

    assert [end.path for end in ends_of([pki.broker, pki.authority])] == [str(pki.authority)]
