"""The playbook of upgrades says so if nothing was upgraded; on hosts that are folders."""

from pathlib import Path

import pytest
import yaml

from tests.ansible.argument_specs import ROLES
from tests.ansible.playing import Machines, done

GROUPS = {"logship_brokers": ["broker1"], "logship_receivers": [], "logship_shippers": ["web01"]}
REPORT = "Nothing was upgraded: every host has nats-logship==0.2.0 already; for another version"


@pytest.mark.long
def test_an_upgrade_says_once_that_no_host_needed_it(tmp_path: Path) -> None:
    hosts = Machines(tmp_path, ["broker1", "web01"])
    upgrade = yaml.safe_load((ROLES.parent / "upgrade.yml").read_text("utf-8"))
    role = {"name": "logship_install", "tasks_from": "package"}
    program = "{{ 'broker' if inventory_hostname == 'broker1' else 'shipper' }}"
    own = {"logship_install_program": program, "logship_install_is_new": False}
    tasks = [{"ansible.builtin.include_role": role, "vars": own}]
    stamp = str(hosts.place / "installed.json")
    extra = {"logship_install_stamp": stamp, "logship_install_version": "0.2.0"}

    def count_reports() -> int:
        plays = [{"hosts": "all", "tasks": tasks}, {**upgrade[-1], "serial": 2}]
        return done(hosts.play(plays, extra, GROUPS, "--check")).count(REPORT)

    for name, extras in ("broker1", "broker"), ("web01", "nkeys"):
        wanted = f'{{"requirement": "nats-logship[{extras}]==0.2.0", "wheels": ""}}'
        (tmp_path / name / "installed.json").write_text(wanted, "utf-8")
    assert count_reports() == 1
    (tmp_path / "web01/installed.json").unlink()
    assert count_reports() == 0
