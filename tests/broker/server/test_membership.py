import os
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.server.membership import check_membership, remember_membership


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    (tmp_path / "jetstream" / "LOGS" / "streams" / "LOGS").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def member(tmp_path: Path) -> Path:
    (tmp_path / "jetstream" / "SYS" / "_js_" / "_meta_").mkdir(parents=True)
    (tmp_path / "jetstream" / "LOGS" / "streams" / "LOGS").mkdir(parents=True)
    remember_membership(tmp_path, "logs", "b1")
    return tmp_path


def test_an_empty_store_may_be_anything(tmp_path: Path) -> None:
    check_membership(tmp_path, "", "b1")
    check_membership(tmp_path, "logs", "b1")


def test_a_store_stays_what_it_is(alone: Path) -> None:
    check_membership(alone, "", "whatever")


def test_a_server_of_a_cluster_comes_back_as_itself(member: Path) -> None:
    check_membership(member, "logs", "b1")


def test_streams_that_a_cluster_would_remove_keep_a_store_out_of_it(alone: Path) -> None:
    with pytest.raises(ConfigurationError, match="logbroker backup"):
        check_membership(alone, "logs", "b1")


def test_a_copy_does_not_go_its_own_way(member: Path) -> None:
    with pytest.raises(ConfigurationError, match="--cluster"):
        check_membership(member, "", "b1")


def test_a_server_does_not_come_back_by_another_name(member: Path) -> None:
    with pytest.raises(ConfigurationError, match="--server-name b1"):
        check_membership(member, "logs", "b2")


def test_whose_disk_was_wiped_may_begin_anew(member: Path) -> None:
    (member / "jetstream").rename(member / "gone")

    check_membership(member, "logs", "b2")


def test_a_pipe_in_the_place_of_its_name_is_not_waited_for(member: Path) -> None:
    (member / "cluster.json").unlink()
    os.mkfifo(member / "cluster.json")

    check_membership(member, "logs", "b2")
