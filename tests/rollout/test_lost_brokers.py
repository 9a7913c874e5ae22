"""The first broker's machine is lost, and with it the book of credentials: set up anew, it lets in whom it let in before.

On booted machines, over SSH, as `make rollout-test` runs it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.rollout.field import Field, Play, laid_out
from tests.systemd.machine import reason_not_to_boot

WHEELHOUSE = os.environ.get("ROLLOUT_WHEELHOUSE", "")
REASON = reason_not_to_boot() or ("" if WHEELHOUSE else "make rollout-test runs it")
pytestmark = [
    pytest.mark.booted,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]
STORE = "/var/lib/logbroker"
BOOK = f"{STORE}/credentials.json"
SECRET = "/etc/credstore/logshipper.toml"
RUNS = "systemctl show --property MainPID --value logbroker"
PROOF = r'"nkey": "(U[A-Z2-7]+)"'


class Site:
    """Brokers and a host that ships to them; who may get in is said by nobody but the first broker's book."""

    def __init__(self, field: Field) -> None:
        """Roll out."""
        self.field = field
        self.brokers = [name for name in field.machines if name.startswith("broker")]
        self.wants()
        self.plays("site.yml")
        self.secret = self.of_host(f"cat {SECRET}")
        assert all(self.gets_in(broker) for broker in self.brokers)

    @property
    def copy(self) -> Path:
        """The controller's copy of the book."""
        return self.field.folder / "inventory/logship-secrets/credentials.json"

    def wants(self, own: dict[str, dict[str, Any]] | None = None, **more: Any) -> None:
        """Write the inventory, with more variables, and those of a machine's own."""
        groups = {"logship_brokers": self.brokers, "logship_shippers": ["web01"]}
        variables = {
            "logship_install_wheelhouse": WHEELHOUSE,
            "logship_broker_settings": {"partitions": 2},
            "logship_broker_encryption": True,
            "logship_shipper_settings": {"file": ["/var/log/app.log"]},
        }
        self.field.inventory(groups, variables | more, own)

    def plays(self, playbook: str, *words: str) -> Play:
        play = self.field.play(playbook, *words)
        assert play.code == 0, play.said[-6000:]
        return play

    def refuses(self, because: str, *words: str) -> None:
        play = self.field.play("site.yml", *words)
        assert play.code != 0
        assert because in " ".join(play.said.split()), play.said[-6000:]

    def of_brokers(self, command: str) -> list[str]:
        return [self.field.machines[broker].told(command) for broker in self.brokers]

    def of_host(self, command: str) -> str:
        return self.field.machines["web01"].told(command)

    def gets_in(self, broker: str) -> bool:
        """Whether the host gets in at this very broker, by the secret that it has."""
        address = self.field.address(broker)
        words = f"--config {SECRET} --server nats://{address}:4222 --file /var/log/app.log"
        return self.field.machines["web01"].does(f"logshipper check {words}")

    def book(self, broker: str) -> str:
        return self.field.machines[broker].told(f"cat {BOOK}")

    def lose(self, broker: str) -> None:
        """Set a broker's machine up anew: nothing of it is left there."""
        self.plays("uninstall.yml", "--limit", broker, "--extra-vars", "logship_remove_data=true")
        assert not self.field.machines[broker].does(f"test -e {STORE} -o -e /etc/logship")


def test_a_lost_first_broker_of_several_has_its_book_back_from_another_and_cuts_off_nobody(
    tmp_path: Path,
) -> None:
    with laid_out(tmp_path / "field", ["broker1", "broker2", "broker3", "web01"]) as field:
        site = Site(field)
        before = site.book("broker2")
        site.copy.unlink()
        site.lose("broker1")

        site.plays("site.yml")

        assert site.of_host(f"cat {SECRET}") == site.secret
        assert all(site.gets_in(broker) for broker in site.brokers)
        assert len({site.book(broker) for broker in site.brokers}) == 1
        assert set(re.findall(PROOF, before)) <= set(re.findall(PROOF, site.book("broker1")))
        assert field.machines["broker1"].told(f"stat -c '%U %a' {BOOK}") == "logbroker 640"

        _keeps_what_a_controller_has_lost(site)
        _stops_none_beside_one_that_is_down(site)
        _starts_one_again_whose_setting_was_wrong(site)

        by_hand = f"logbroker credentials revoke host web01 --yes --store-dir {STORE}"
        field.machines["broker1"].told(f"runuser -u logbroker -- {by_hand}")
        refused = field.play("site.yml")
        assert refused.code != 0
        assert "does not take over the book of broker1" in refused.said
        assert "Take away host web01?" in refused.said
        assert (site.gets_in("broker1"), site.gets_in("broker2")) == (False, True)
        site.plays("revoke.yml", "--extra-vars", "logship_revoke=web01")
        assert not any(site.gets_in(broker) for broker in site.brokers)


def _keeps_what_a_controller_has_lost(site: Site) -> None:
    secrets = "cat /etc/credstore/logbroker.encryption-key /etc/credstore/logbroker.cluster-secret"
    folder, before, runs = site.copy.parent, site.of_brokers(secrets), site.of_brokers(RUNS)
    for file in (folder / "cluster-secret", *folder.glob("encryption-key.*")):
        file.unlink()

    play = site.plays("site.yml")

    assert [play.counts("changed")[broker] for broker in site.brokers[1:]] == [1, 1]
    shared = (folder / "cluster-secret").read_text("utf-8").strip()
    keys = [(folder / f"encryption-key.{name}").read_text("utf-8").strip() for name in site.brokers]
    assert [text.split() for text in before] == [[key, shared] for key in keys]
    assert (folder / "cluster-secret").stat().st_mode & 0o777 == 0o600

    (folder / "encryption-key.broker1").write_text("of another broker\n", "utf-8")
    site.refuses("are different keys")
    (folder / "encryption-key.broker1").unlink()
    (folder / "authority").rename(folder / "moved")
    site.refuses("a new one would lock everybody out")
    (folder / "moved").rename(folder / "authority")
    assert (site.of_brokers(secrets), site.of_brokers(RUNS)) == (before, runs)
    assert all(site.gets_in(broker) for broker in site.brokers)


def _stops_none_beside_one_that_is_down(site: Site) -> None:
    _, broker2, broker3 = (site.field.machines[name] for name in site.brokers)
    runs = site.of_brokers(RUNS)
    site.wants(
        logship_broker_settings={"partitions": 2, "description": "lines"},
        logship_broker_tls_names=["logs.example.net"],
    )
    broker3.told("systemctl stop logbroker")

    retries = ("--extra-vars", "logship_broker_health_retries=2")
    site.refuses("No broker of the cluster is stopped while", "--limit", "broker2", *retries)

    assert broker2.told(RUNS) == runs[1]
    site.plays("site.yml")
    assert not set(site.of_brokers(RUNS)) & {"0", *runs}
    assert not broker2.does("test -e /etc/logship/logbroker.restart")
    named = (
        "/opt/logship/bin/python -c 'from broker.auth.certificates import Pki; from pathlib import Path; "
        f'print(Pki(Path("{STORE}/tls")).names())\''
    )
    assert all("logs.example.net" in told for told in site.of_brokers(named))
    assert not any(site.plays("site.yml").counts("changed").values())


def _starts_one_again_whose_setting_was_wrong(site: Site) -> None:
    runs = site.of_brokers(RUNS)
    elsewhere = {"logship_broker_environment": {"LOGBROKER_LISTEN": "203.0.113.1:4222"}}
    site.wants(
        {"broker1": elsewhere}, logship_broker_settings={"partitions": 2, "description": "mine"}
    )

    site.refuses("Unable to restart service logbroker.service")
    site.wants()
    site.plays("site.yml", "--limit", "broker1")

    assert site.of_brokers(RUNS)[1:] == runs[1:]
    assert site.gets_in("broker1")


def test_a_lost_only_broker_has_its_book_back_from_the_controller_or_says_that_it_is_lost(
    tmp_path: Path,
) -> None:
    with laid_out(tmp_path / "field", ["broker1", "web01"]) as field:
        site = Site(field)
        kept = site.copy.read_text("utf-8")
        assert json.loads(kept) == json.loads(site.book("broker1"))
        assert (site.copy.stat().st_mode & 0o777, site.copy.parent.stat().st_mode & 0o777) == (
            0o600,
            0o700,
        )

        site.lose("broker1")
        site.plays("site.yml")
        assert site.of_host(f"cat {SECRET}") == site.secret
        assert site.gets_in("broker1")

        machine = field.machines["broker1"]
        site.copy.unlink()
        machine.told(f"rm {BOOK}")  # the store's disk, and not the machine's
        refused = field.play("site.yml")
        assert refused.code != 0
        assert "broker1 has lost the book" in refused.said
        assert not machine.does(f"test -e {BOOK}")

        site.lose("broker1")
        refused = field.play("site.yml")
        assert refused.code != 0
        assert "web01 has a credential" in refused.said
        assert site.of_host(f"cat {SECRET}") == site.secret

        machine.write(BOOK, kept)
        machine.told(f"chown logbroker: {BOOK} && rm /etc/credstore/logbroker-admin.toml")
        site.plays("site.yml")
        assert site.gets_in("broker1")
