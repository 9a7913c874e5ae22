"""What roles and playbooks hold to: existing units, hidden secrets, known variables."""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.argument_specs import variables

ROOT = Path(__file__).parents[2]
ANSIBLE = ROOT / "ansible"
TASK_FILES = sorted(
    path
    for path in ANSIBLE.rglob("*.yml")
    if path.parent.name in ("tasks", "handlers") or path.parent == ANSIBLE
)
INVENTORIES = sorted((ANSIBLE / "inventories").glob("*/hosts.yml"))
SECRET = ("credstore", ".env", "logship_credential_output", "broker.pem", "secret")


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    def within(many: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for one in many:
            yield one
            for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                yield from within(one.get(key) or [])

    yield from within(yaml.safe_load(path.read_text("utf-8")))


def all_tasks() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in TASK_FILES:
        for task in tasks(path):
            yield f"{path.relative_to(ANSIBLE)}: {task.get('name')}", task


def test_a_secret_is_for_root_or_the_broker_alone_and_is_never_shown() -> None:
    files = commands = 0
    for where, task in all_tasks():
        written = task.get("ansible.builtin.copy") or task.get("ansible.builtin.template") or {}
        if any(word in str(written.get(key, "")) for word in SECRET for key in ("dest", "src")):
            files += 1
            assert written["mode"] == "0600", where
            assert task.get("no_log") is True, where
            assert task.get("diff") is False, where
        if "'--output', '-'" in str(task.get("ansible.builtin.command")):
            commands += 1
            assert task["no_log"] is True, where
        if task.get("name") == "Install the package":
            assert task["no_log"] == "{{ '@' in logship_install_index_url }}", where
    assert files >= 8
    assert commands


def test_units_that_roles_install_are_there() -> None:
    variables = (ANSIBLE / "roles/logship_install/vars/main.yml").read_text("utf-8")

    for unit in (*(ROOT / "systemd").glob("*.service"), *(ROOT / "systemd").glob("*.target")):
        assert f"'{unit.name}'" in variables, unit


def test_what_units_and_roles_have_besides_is_removed_with_them() -> None:
    text = (ANSIBLE / "uninstall.yml").read_text("utf-8")
    (patterns,) = (
        find["patterns"]
        for task in tasks(ANSIBLE / "uninstall.yml")
        if (find := task.get("ansible.builtin.find", {})).get("paths") == ["/etc/credstore"]
    )
    units = [path.read_text("utf-8") for path in (ROOT / "systemd").glob("*.service")]
    loaded = {
        line.split(":")[-1]
        for unit in units
        for line in re.findall(r"^LoadCredential=(.*)$", unit, re.MULTILINE)
    }
    roles = "".join(path.read_text("utf-8") for path in TASK_FILES)
    folders = set(re.findall(r"/etc/systemd/system/\S+?\.service\.d", roles))

    assert len(loaded) >= 9
    assert [one for one in loaded if not any(fnmatch(one, glob) for glob in patterns)] == []
    assert len(folders) >= 5
    assert [one for one in folders if f"'{one}'" not in text] == []


def test_links_that_a_role_has_made_for_mounts_are_removed_with_it() -> None:
    paths = ANSIBLE / "roles/logship_receiver/tasks/main.yml", ANSIBLE / "uninstall.yml"
    found = [
        {"file_type": find["file_type"], "patterns": find["patterns"]}
        for path in paths
        for task in tasks(path)
        if (find := task.get("ansible.builtin.find", {})).get("recurse")
    ]

    assert len(found) == 2
    assert found[0] == found[1]


def test_a_console_that_runs_is_restarted_with_the_broker_of_an_upgrade() -> None:
    handlers = {
        one["name"]: one for one in tasks(ANSIBLE / "roles/logship_broker/handlers/main.yml")
    }

    assert handlers["Restart the console"]["listen"] == "Restart the broker"


@pytest.mark.parametrize("program", ["broker", "shipper", "receiver"])
def test_what_is_installed_is_noted_once_it_runs(program: str) -> None:
    """A run that ends half way leaves the restart to the next one."""
    played = [*tasks(ANSIBLE / f"roles/logship_{program}/tasks/main.yml")]
    noted = {"name": "logship_install", "tasks_from": "note"}
    package = (ANSIBLE / "roles/logship_install/tasks/package.yml").read_text("utf-8")

    restarts = [one.get("ansible.builtin.meta") for one in played].index("flush_handlers")
    assert [one.get("ansible.builtin.include_role") for one in played].index(noted) > restarts
    assert 'dest: "{{ logship_install_stamp }}"' not in package


def test_a_run_that_ends_after_a_change_leaves_its_restart_to_the_next() -> None:
    """The mark is made before anything that notifies, and only the end of a run removes it."""
    played = [*tasks(ANSIBLE / "roles/logship_install/tasks/main.yml")]
    names = [one.get("ansible.builtin.include_tasks") for one in played]
    begun = {"path": "{{ logship_install_begun }}", "state": "absent"}
    ends = {where.split(":")[0] for where, one in all_tasks() if begun in one.values()}

    assert names.index("begin.yml") < min(n for n, one in enumerate(played) if "notify" in one)
    assert ends == {"roles/logship_install/tasks/note.yml"}


def test_variables_that_are_not_wanted_any_longer_are_removed() -> None:
    """They may be secrets."""
    written, removed = set(), set()
    for where, task in all_tasks():
        if where.startswith("uninstall"):
            continue
        written.add(task.get("ansible.builtin.template", {}).get("dest", ""))
        patterns = task.get("ansible.builtin.find", {}).get("patterns", ())
        removed |= {patterns} if isinstance(patterns, str) else set(patterns)
        if (file := task.get("ansible.builtin.file", {})).get("state") == "absent":
            removed.add(Path(file["path"]).name)
    variables = {Path(one).name for one in written if one.endswith(".env")}

    assert len(variables) >= 5
    assert [one for one in variables if not any(fnmatch(one, glob) for glob in removed)] == []


@pytest.mark.parametrize("program", ["shipper", "receiver"])
def test_a_status_is_asked_with_the_variables_of_the_service(program: str, tmp_path: Path) -> None:
    """In none of the arguments, which are logged."""
    own = tmp_path / f"log{program}.env"
    places = {f"/etc/logship/{own.name}": str(own), f"/opt/logship/bin/log{program}": "/bin/env"}
    asked = [one for task in tasks(ANSIBLE / "status.yml") for one in task.get("loop", ())]
    commands = [one for one in asked if own.name in str(one)]
    health = ANSIBLE / f"roles/logship_{program}/tasks/health.yml"
    commands += [next(tasks(health))["ansible.builtin.command"]["argv"]]

    assert len(commands) == 2
    for command in commands:
        given = [places.get(one, one) for one in command]
        given = given[: given.index("/bin/env") + 1]
        for text, expected in (None, False), ('# ours\nLOGS_PASSWORD="a \\"b\\$"\n', True):
            own.unlink(missing_ok=True)
            if text is not None:
                own.write_text(text, "utf-8")
            done = subprocess.run(given, capture_output=True, text=True, check=True)
            assert ('LOGS_PASSWORD=a "b$' in done.stdout.splitlines()) == expected


@pytest.mark.parametrize("path", INVENTORIES, ids=lambda path: path.parent.name)
def test_an_example_sets_only_variables_that_roles_take(path: Path) -> None:
    inventory = yaml.safe_load(path.read_text("utf-8"))

    assert set(inventory) == {"logship_brokers", "logship_receivers", "logship_shippers"}
    for group in inventory.values():
        for given in (group.get("vars"), *group["hosts"].values()):
            assert set(given or {}) <= variables()
