"""The broker's folder: one owner at a time, and a store stays what it is: alone or of a cluster, and with its own key."""

import os
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, OperatorError
from broker.server.store import (
    check_membership,
    encryption_of,
    is_locked,
    locked_store,
    remember_membership,
)
from broker.settings import SecuritySettings


def test_a_store_has_one_owner_at_a_time_and_can_be_held_again(tmp_path: Path) -> None:
    owner = pytest.raises(OperatorError, match=str(os.getpid()))

    with locked_store(tmp_path / "s"):
        assert is_locked(tmp_path / "s")
        with owner, locked_store(tmp_path / "s"):
            pass
    assert not is_locked(tmp_path / "s")
    with locked_store(tmp_path / "s"):
        pass


def test_a_child_that_inherits_the_lock_keeps_others_out(tmp_path: Path) -> None:
    with locked_store(tmp_path / "s") as lock:
        inherited = os.dup(lock)

    with pytest.raises(OperatorError), locked_store(tmp_path / "s"):
        pass
    os.close(inherited)


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    (tmp_path / "jetstream" / "LOGS" / "streams" / "LOGS").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def member(alone: Path) -> Path:
    (alone / "jetstream" / "SYS" / "_js_" / "_meta_").mkdir(parents=True)
    remember_membership(alone, "logs", "b1")
    return alone


def test_a_store_that_was_alone_stays_alone(alone: Path) -> None:
    check_membership(alone, "", "whatever")
    with pytest.raises(ConfigurationError, match="logbroker backup"):
        check_membership(alone, "logs", "b1")


def test_a_member_stays_that_member_until_its_disk_is_wiped(member: Path) -> None:
    check_membership(member, "logs", "b1")
    with pytest.raises(ConfigurationError, match="--cluster"):
        check_membership(member, "", "b1")
    with pytest.raises(ConfigurationError, match="--server-name b1"):
        check_membership(member, "logs", "b2")

    (member / "jetstream").rename(member / "gone")
    check_membership(member, "logs", "b2")


def settings(file: Path | None) -> SecuritySettings:
    return SecuritySettings().model_copy(update={"encryption_key_file": file})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n", "utf-8")
    return file


def stream_in(store: Path) -> Path:
    folder = store / "jetstream" / "LOGS" / "streams" / "LOGS"
    folder.mkdir(parents=True)
    (folder / "meta.inf").write_bytes(b"{}")
    return folder


def test_a_new_store_takes_the_key_which_no_file_and_no_repr_shows(
    tmp_path: Path, key: Path
) -> None:
    encryption = encryption_of(settings(key), tmp_path / "store")

    assert (encryption.key, encryption.cipher) == ("0123456789abcdef", "chachapoly")
    assert encryption.environment() == {"LOGSHIP_STORE_KEY": '"0123456789abcdef"'}
    assert encryption.key not in repr(encryption)


def test_a_store_in_the_clear_is_not_encrypted_in_place(tmp_path: Path, key: Path) -> None:
    stream_in(tmp_path)

    assert encryption_of(settings(None), tmp_path).cipher is None
    with pytest.raises(ConfigurationError, match="is not encrypted in place"):
        encryption_of(settings(key), tmp_path)


@pytest.mark.parametrize(("length", "cipher"), [(72, "chacha20"), (64, "aes")])
def test_a_store_is_opened_with_its_key_and_cipher_only(
    tmp_path: Path, key: Path, length: int, cipher: str
) -> None:
    (stream_in(tmp_path) / "meta.key").write_bytes(bytes(length))

    refused = [settings(None)] if cipher == "chacha20" else [settings(None), settings(key)]
    for one in refused:
        with pytest.raises(ConfigurationError, match=f"encryption_cipher = '{cipher}'$"):
            encryption_of(one, tmp_path)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 32, b"two\nlines, and long enough"])
def test_what_is_no_key_is_refused(tmp_path: Path, key: Path, content: bytes) -> None:
    key.write_bytes(content)

    with pytest.raises(ConfigurationError, match="is no key"):
        encryption_of(settings(key), tmp_path)
