"""The role of brokers replaces no secret of a store, and never takes a quorum away.

Brokers are folders of this machine, each with its /etc/credstore and systemctl; Ansible is real.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.argument_specs import ROLES
from tests.ansible.playing import BROKERS, Machines, done, play

SYSTEMCTL = """#!/bin/sh
case "$*" in
  *restart*) echo restarted >>{folder}/restarts ;;
  *show*) echo LoadState=loaded; echo ActiveState=active ;;
esac
"""
KEY, SHARED = "logbroker.encryption-key", "logbroker.cluster-secret"
RUNNING, DOWN = {"rc": 0}, {"rc": 3}
pytestmark = pytest.mark.timeout(1800)


class Cluster(Machines):
    """Three brokers, of whose role some tasks are played."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, BROKERS)
        for name in BROKERS:
            program = folder / name / "bin/systemctl"
            program.parent.mkdir()
            program.write_text(SYSTEMCTL.format(folder=folder / name), "utf-8")
            program.chmod(0o755)

    @property
    def here(self) -> dict[str, str]:
        files = (self.folder / "logship-secrets").glob("*")
        return {path.name: path.read_text("utf-8") for path in files}

    def of(self, broker: str, name: str) -> Path:
        return self.folder / broker / name

    def plays(
        self, tasks: str, *arguments: str, hosts: str = "all", notified: str = "", **given: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Play tasks of the role; then, as a handler, what is to be `notified`, as one run."""
        notifying = {"ansible.builtin.command": {"argv": ["true"]}, "notify": notified}
        notifying |= dict.fromkeys(("changed_when", "when"), bool(notified))
        role = {"name": "logship_broker", "tasks_from": tasks}
        begin, note = (
            {"ansible.builtin.include_role": {"name": "logship_install", "tasks_from": part}}
            for part in ("begin", "note")
        )
        flush = {"ansible.builtin.meta": "flush_handlers"}
        all_of_them = [{"ansible.builtin.include_role": role}, begin, notifying, flush, note]
        one = {"hosts": hosts, "max_fail_percentage": 0, "tasks": all_of_them}
        extra = {
            "logship_broker_members": list(BROKERS),
            "logship_broker_encryption": True,
            "logship_broker_credstore": str(self.place),
            "logship_install_program": "broker",
            "logship_install_begun": str(self.place / "begun"),
            "logship_install_stamp": str(self.place / "installed.json"),
            "logship_install_wanted": {},
            "logship_broker_before": DOWN,
            "logship_broker_starts_now": False,
            **given,
        }
        return self.play([one], extra, {}, *arguments)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.long
def test_secrets_are_made_once_restored_to_a_controller_and_never_replaced(
    cluster: Cluster,
) -> None:
    folder = cluster.folder / "logship-secrets"
    done(cluster.plays("secrets", "--check"))
    assert cluster.here == {}
    done(cluster.plays("secrets"))
    made = cluster.here
    assert sorted(made) == ["cluster-secret", *(f"encryption-key.{name}" for name in BROKERS)]
    assert len(set(made.values())) == 4
    for broker in BROKERS:
        assert cluster.of(broker, KEY).read_text("utf-8") == made[f"encryption-key.{broker}"]
        assert cluster.of(broker, SHARED).read_text("utf-8") == made["cluster-secret"]

    shutil.rmtree(folder)
    done(cluster.plays("secrets"))
    assert cluster.here == made

    shutil.rmtree(folder)
    cluster.of("broker1", SHARED).unlink()
    cluster.of("broker1", KEY).unlink()
    done(cluster.plays("secrets", hosts="broker1"))  # a new machine comes first
    assert cluster.of("broker1", SHARED).read_text("utf-8") == made["cluster-secret"]
    own = folder / "encryption-key.broker1"
    assert (before := own.read_text("utf-8")) != made[own.name]

    own.write_text("of another broker\n", "utf-8")
    for arguments in ([], ["--check"]):
        refused = cluster.plays("secrets", *arguments)
        assert refused.returncode != 0
        assert str(cluster.place / KEY) in refused.stdout
        assert "Nothing was replaced" in " ".join(refused.stdout.split())
        assert own.read_text("utf-8") == "of another broker\n"
        assert cluster.of("broker1", KEY).read_text("utf-8") == before


@pytest.mark.long
def test_a_member_is_restarted_by_the_first_run_that_finds_all_lines(cluster: Cluster) -> None:
    given: dict[str, Any] = {
        "hosts": "broker1",
        "logship_broker_before": RUNNING,
        "logship_broker_starts_now": True,
        "logship_broker_health_retries": 1,
    }
    well, behind = ["true"], ["sh", "-c", "echo 2 of 3 servers hold all of the stream; exit 1"]

    given["logship_broker_checks"] = behind
    refused = cluster.plays("running", notified="Restart the broker", **given)
    assert refused.returncode != 0
    assert "as seen by broker1: 2 of 3 servers hold" in " ".join(refused.stdout.split())
    assert not cluster.of("broker1", "restarts").exists()

    given["logship_broker_checks"] = well
    for _ in range(2):
        done(cluster.plays("running", **given))
        assert cluster.of("broker1", "restarts").read_text() == "restarted\n"


QUORUM = {
    "alone": (1, [], True),
    "none of two": (2, [DOWN], False),
    "none of a new cluster": (3, [DOWN, DOWN], False),
    "with it a quorum": (3, [RUNNING, DOWN], True),
    "one is away": (3, [RUNNING, {"unreachable": True}], True),
    "all others": (3, [RUNNING, RUNNING], True),
    "too few": (5, [RUNNING, DOWN, DOWN, DOWN], False),
}


@pytest.mark.long
def test_who_has_a_credential_without_an_authority_is_not_locked_out(cluster: Cluster) -> None:
    cluster.of("broker2", "admin.toml").touch()
    own = {"logship_broker_store": str(cluster.place)}
    own |= {"logship_broker_admin": str(cluster.place / "admin.toml")}

    refused = cluster.plays("tls", hosts="broker1", **own)

    assert refused.returncode != 0
    assert "they carry no authority" in " ".join(refused.stdout.split())
    assert cluster.here == {}


def test_a_member_that_is_down_is_started_where_it_makes_a_quorum(tmp_path: Path) -> None:
    role = ROLES / "logship_broker"
    given: dict[str, Any] = {"logship_broker_settings": {"cluster_listen": "10.0.0.1:7222"}}
    expected = {"that": "logship_broker_cluster_port == '7222'"}
    tasks = [{"name": "port", "vars": given, "ansible.builtin.assert": expected}]
    for name, (members, others, starts) in QUORUM.items():
        given = {"logship_broker_members": [f"broker{number}" for number in range(members)]}
        given |= {"logship_broker_beside": {"results": others}}
        expected = {"that": f"logship_broker_starts_now == {starts}"}
        tasks.append({"name": name, "vars": given, "ansible.builtin.assert": expected})
    files = [str(role / part) for part in ("defaults/main.yml", "vars/main.yml")]
    one = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    one |= {"vars_files": files, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([one]), "utf-8")
    done(play(["--inventory", "localhost,", tmp_path / "play.yml"]))
