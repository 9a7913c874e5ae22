"""The first broker's machine is lost, and with it the book of credentials: set up anew, it lets in whom it let in before.

On booted machines, over SSH, as `make rollout-test` runs it.
"""

import json
import os
import re
from pathlib import Path

import pytest

from tests.rollout.field import Field, laid_out
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
PROOF = r'"nkey": "(U[A-Z2-7]+)"'


class Site:
    """Brokers and a host that ships to them; who may get in is said by nobody but the first broker's book."""

    def __init__(self, field: Field) -> None:
        """Roll out."""
        self.field = field
        self.brokers = [name for name in field.machines if name.startswith("broker")]
        groups = {"logship_brokers": self.brokers, "logship_shippers": ["web01"]}
        variables = {
            "logship_install_wheelhouse": WHEELHOUSE,
            "logship_broker_settings": {"partitions": 2},
            "logship_shipper_settings": {"file": ["/var/log/app.log"]},
        }
        field.inventory(groups, variables)
        self.plays("site.yml")
        self.secret = self.of_host(f"cat {SECRET}")
        assert all(self.gets_in(broker) for broker in self.brokers)

    @property
    def copy(self) -> Path:
        """The controller's copy of the book."""
        return self.field.folder / "inventory/logship-secrets/credentials.json"

    def plays(self, playbook: str, *words: str) -> None:
        play = self.field.play(playbook, *words)
        assert play.code == 0, play.said[-6000:]

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

        by_hand = f"logbroker credentials revoke host web01 --yes --store-dir {STORE}"
        field.machines["broker1"].told(f"runuser -u logbroker -- {by_hand}")
        refused = field.play("site.yml")
        assert refused.code != 0
        assert "does not take over the book of broker1" in refused.said
        assert "Take away host web01?" in refused.said
        assert (site.gets_in("broker1"), site.gets_in("broker2")) == (False, True)
        site.plays("revoke.yml", "--extra-vars", "logship_revoke=web01")
        assert not any(site.gets_in(broker) for broker in site.brokers)


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
