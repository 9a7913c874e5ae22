"""What roles make of the variables of receivers and shippers, and of what these say."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.argument_specs import ROLES
from tests.ansible.playing import play, rendered, rendering

ROLE_FILES = [
    str(ROLES / role / folder / "main.yml")
    for role in ("logship_receiver", "logship_shipper")
    for folder in ("defaults", "vars")
]
ALL: list[dict[str, Any]] = [{"name": "all"}]
TWO = [{"name": "two", "partitions": [0, 2]}]
IN_A_TEXT = [{"name": "two", "partitions": "0, 2"}]
RUN, DOWN = {"running": True, "blocked": None}, {"running": False, "blocked": None}
STUCK = {"running": True, "blocked": {"cause": "disk"}}
HEALTH: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], bool]] = {
    "all": (ALL, [RUN, RUN, RUN], True),
    "not all": (ALL, [RUN, DOWN, RUN], False),
    "others' are no concern": (TWO, [RUN, DOWN, RUN], True),
    "one is blocked": (TWO, [RUN, DOWN, STUCK], False),
    "as a text": (IN_A_TEXT, [RUN, RUN, DOWN], False),
    "none is known": (TWO, [], False),
    "a table alone": ([], [DOWN, DOWN, DOWN], True),
}
GROUPS = {"": "logreceiver", "alice": "logreceiver", ":adm": "adm", "alice:4": "4"}
HOLDERS = {"": True, 'host = "web01"': True, 'host = "web02"': False}


def asserted(name: str, that: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "vars": given, "ansible.builtin.assert": {"that": that}}


@pytest.mark.timeout(900)
def test_hosts_are_judged_and_set_up_by_their_variables(tmp_path: Path) -> None:
    """All in one run of Ansible, which is slow to start."""
    tasks = []
    for name, (instances, partitions, is_well) in HEALTH.items():
        told = {"partitions": [{"partition": n} | one for n, one in enumerate(partitions)]}
        given: dict[str, Any] = {"logship_receiver_instances": instances}
        given |= {"logship_receiver_health": {"stdout": json.dumps(told)}}
        tasks.append(asserted(name, f"logship_receiver_is_well == {is_well}", given))
    for owner, group in GROUPS.items():
        given = {"logship_receiver_settings": {"owner": owner}}
        tasks.append(asserted(owner, f"logship_receiver_group == '{group}'", given))
    shipper = yaml.safe_load((ROLES / "logship_shipper/tasks/main.yml").read_text("utf-8"))
    (own,) = (one for one in shipper if one["name"] == "See that it is this host's")
    that = own["ansible.builtin.assert"]["that"]
    for holder, is_own in HOLDERS.items():
        given = {"logship_shipper_settings": {"host": "web01"}}
        given |= {"logship_shipper_holder": {"stdout": holder}}
        tasks.append(asserted(holder, f"({that}) == {is_own}", given))
    template = ROLES / "logship_receiver/templates/instance.env.j2"
    tasks += [rendering(template, item=one) for one in (*TWO, *IN_A_TEXT)]
    one = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    one |= {"vars_files": ROLE_FILES, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([one]), "utf-8")

    texts = rendered(play(["--inventory", "localhost,", tmp_path / "play.yml"]))

    variables = [one for text in texts for one in text.splitlines() if one.startswith("LOG")]
    assert variables == ["LOGRECEIVER_PARTITION=0,2", "LOGRECEIVER_PARTITION=0, 2"]
