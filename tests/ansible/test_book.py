"""The role that makes credentials, on brokers that are folders of this machine.

Each sees a folder of its own as the store; Ansible and `logbroker credentials` are real. The
rollout shows that a second run changes nothing, and that a revoked credential is cut off.
"""

import getpass
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nats_logship.client.nkey import seed_of, user_key
from tests.ansible.argument_specs import ROLES
from tests.ansible.playing import BROKERS, Machines, done
from tests.support.processes import installed

OTHERS = ("web01", "logs")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


class Site(Machines):
    """Three brokers, a host and a receiving machine, on which the role is played."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (*BROKERS, *OTHERS))
        self.copy = folder / "logship-secrets/credentials.json"

    def secret(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    def book(self, broker: str) -> Path:
        return self.folder / broker / "credentials.json"

    def names(self, broker: str) -> set[str]:
        return {one["name"] for one in json.loads(self.book(broker).read_text())["credentials"]}

    def rolls_out(self) -> "subprocess.CompletedProcess[str]":
        return self._plays(
            self._on("logship_brokers[0]", "recover"),
            self._on("logship_brokers", "main", kind="admin", brokers=BROKERS[:1]),
            self._on("logship_brokers[1:]", "follow", broker="{{ inventory_hostname }}"),
            self._on("logship_shippers", "main", kind="host"),
        )

    def receives(self, partitions: str, **given: str) -> "subprocess.CompletedProcess[str]":
        share = {"kind": "receiver", "partitions": partitions}
        return self._plays(self._on("logs", "main", **share, **given))

    def revokes(self, host: str) -> "subprocess.CompletedProcess[str]":
        """Play the role, and what the playbook says in the end."""
        revoking = self._on("logship_brokers[0]", "revoke", kind="host", name=host)
        playbook = yaml.safe_load((ROLES.parent / "revoke.yml").read_text("utf-8"))
        return self._plays({**revoking, "tasks": [*revoking["tasks"], playbook[0]["tasks"][-1]]})

    def follows(self) -> "subprocess.CompletedProcess[str]":
        others = "logship_brokers[1:]"
        return self._plays(self._on(others, "follow", broker="{{ inventory_hostname }}"))

    def share(self, broker: str) -> tuple[list[int], bool]:
        """Return the receiving machine's partitions at a broker, and whether its secret works."""
        credentials = json.loads(self.book(broker).read_text("utf-8"))["credentials"]
        (one,) = (one for one in credentials if one["name"] == "logs")
        seed = seed_of(self.secret("logs").read_text("utf-8"))
        return one["partitions"], one["nkey"] == user_key(seed).public

    def _on(self, hosts: str, tasks: str, **given: Any) -> dict[str, Any]:
        name = "{{ inventory_hostname }}"
        usual = {"name": name, "store_dir": str(self.place), "output": f"{self.folder}/{name}.toml"}
        role = {"name": "logship_credential", "tasks_from": tasks}
        own = {f"logship_credential_{key}": value for key, value in (usual | given).items()}
        # none of the broker: it takes over a new credential while it runs
        names = (f"Restart the {what}" for what in ("shipper", "receiver"))
        handlers = [{"name": name, "ansible.builtin.debug": {}} for name in names]
        tasks_of_role = [{"ansible.builtin.include_role": role, "vars": own}]
        return {"hosts": hosts, "handlers": handlers, "tasks": tasks_of_role}

    def _plays(self, *plays: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
        logbroker = installed("logbroker")
        extra = {
            "logship_credential_logbroker": [logbroker, "credentials"],
            "logship_credential_owner": getpass.getuser(),
        }
        return self.play(plays, extra, {"logship_brokers": BROKERS, "logship_shippers": OTHERS[:1]})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    done(made.rolls_out())
    assert all(made.names(broker) == {*BROKERS, "web01"} for broker in BROKERS)
    return made


def test_a_lost_book_is_put_back_from_the_newest_there_is(site: Site) -> None:
    before, secret = site.book("broker1").read_text(), site.secret("web01").read_text()
    (host,) = (line.strip(" ,") for line in before.splitlines() if '"web01"' in line)
    for lost in ((site.copy,), (site.book("broker2"), site.book("broker3"))):
        for path in (site.book("broker1"), site.secret("broker1"), *lost):
            path.unlink()

        done(site.rolls_out())

        assert site.secret("web01").read_text() == secret
        assert all(host in site.book(broker).read_text() for broker in BROKERS)
        assert json.loads(site.copy.read_text()) == json.loads(site.book("broker1").read_text())
        assert site.copy.stat().st_mode & 0o777 == 0o600


def test_without_any_copy_no_owner_of_a_credential_is_left_out(site: Site) -> None:
    for path in (*map(site.book, BROKERS), site.copy):
        path.unlink()

    refused = site.rolls_out()

    assert refused.returncode != 0
    assert "broker1 has a credential" in refused.stdout
    assert "Put credentials.json of a backup into" in refused.stdout
    assert not site.book("broker1").exists()
    for name in BROKERS:
        site.secret(name).unlink()
    refused = site.rolls_out()
    assert refused.returncode != 0
    assert "web01 has a credential" in refused.stdout


def test_a_broker_that_is_away_keeps_no_other_from_the_book_and_is_named(site: Site) -> None:
    site.away = {"broker2"}
    refused = site.revokes("web01")

    assert refused.returncode != 0
    assert "broker2 cannot be reached, and lets them in" in " ".join(refused.stdout.split())
    assert ["web01" in site.names(broker) for broker in BROKERS] == [False, True, False]
    site.away = {"broker1"}
    done(site.follows())
    site.away = set()
    done(site.revokes("web01"))
    assert not any("web01" in site.names(broker) for broker in BROKERS)


def test_a_receiver_needs_the_first_broker_for_no_credential_that_it_has(tmp_path: Path) -> None:
    site = Site(tmp_path)
    known = {"kind": "receiver", "name": "logs", "nkey": "U", "partitions": [0, 1]}
    site.secret("logs").write_text("nkey_seed = ''\n", "utf-8")
    site.copy.parent.mkdir()
    site.copy.write_text(json.dumps({"credentials": [known]}), "utf-8")
    site.away = {"broker1"}

    done(site.receives("1,0"))
    refused = site.receives("1")

    assert refused.returncode != 0
    assert "broker1 cannot be reached, and logs needs a" in " ".join(refused.stdout.split())
    assert site.secret("logs").exists()


def test_a_receiver_whose_partitions_change_gets_its_secret_by_the_next_run(site: Site) -> None:
    refused = site.receives("0", name="no name")
    assert "'no name' is not made of at most 64" in " ".join(refused.stdout.split())
    done(site.receives("1,0"))
    assert [site.share(broker) for broker in BROKERS] == [([0, 1], True)] * 3
    site.secret("logs").unlink()  # a run ended here

    done(site.rolls_out())
    again = done(site.receives("1"))

    assert "Restart the receiver" in again
    assert [site.share(broker) for broker in BROKERS] == [([1], True)] * 3
    assert "changed: [" not in done(site.rolls_out()) + done(site.receives("1"))
