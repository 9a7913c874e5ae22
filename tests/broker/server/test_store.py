"""The broker's folder: one owner at a time, and the same cluster and key for ever."""

import os
from pathlib import Path

import pytest

from broker.server.store import (
    check_encryption,
    check_membership,
    is_locked,
    lock_store,
    wait_for_credentials,
    write_state,
)
from nats_logship.app.exits import ConfigurationError, OperatorError


def test_a_store_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with lock_store(tmp_path / "s") as lock:
        assert is_locked(tmp_path / "s")
        inherited = os.dup(lock)  # by a child, which may live on
    with pytest.raises(OperatorError, match="another broker"), lock_store(tmp_path / "s"):
        pass
    os.close(inherited)
    assert not is_locked(tmp_path / "s")
    with lock_store(tmp_path / "s"):
        pass


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    (tmp_path / "jetstream" / "LOGS" / "streams" / "LOGS").mkdir(parents=True)
    return tmp_path


def test_a_store_runs_alone_or_as_one_member_until_it_is_wiped(alone: Path) -> None:
    check_membership(alone, "", "whatever")
    with pytest.raises(ConfigurationError, match="logbroker backup"):
        check_membership(alone, "logs", "b1")

    (alone / "jetstream").rename(alone / "gone")
    check_membership(alone, "logs", "b1")
    (alone / "jetstream" / "SYS" / "_js_" / "_meta_").mkdir(parents=True)
    check_membership(alone, "logs", "b1")
    for cluster, name in (("", "b1"), ("logs", "b2")):
        with pytest.raises(ConfigurationError, match="--server-name b1"):
            check_membership(alone, cluster, name)

    (alone / "jetstream").rename(alone / "wiped")
    check_membership(alone, "logs", "b2")


def test_an_unencrypted_store_is_not_opened_with_a_key(alone: Path) -> None:
    (alone / "jetstream/LOGS/streams/LOGS/meta.inf").touch()

    check_encryption(alone, has_key=False)
    with pytest.raises(ConfigurationError, match=r"not encrypted.*logbroker backup"):
        check_encryption(alone, has_key=True)


def test_a_change_that_the_broker_does_not_take_is_an_error(tmp_path: Path) -> None:
    with lock_store(tmp_path):
        write_state(tmp_path, revision=2)

        assert wait_for_credentials(tmp_path, 2) == "the broker has taken the change"
        with pytest.raises(OperatorError, match=r"not taken it within 0.2 s"):
            wait_for_credentials(tmp_path, 3, 0.2)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"revision": 1}'])
def test_a_state_file_without_a_broker_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.json").write_text(text)

    assert "no broker runs" in wait_for_credentials(tmp_path, 2)
