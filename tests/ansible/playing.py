"""Plays of the roles, by the real Ansible."""

import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.argument_specs import ROLES

BROKERS = ("broker1", "broker2", "broker3")
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
INTERPRETER = f"ansible_python_interpreter={sys.executable}"


def play(arguments: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}  # Ansible takes no other encoding
    command = [PLAYBOOK, *arguments]
    return subprocess.run(
        command, cwd=ROLES.parent, env=environment, capture_output=True, text=True
    )


def done(played: "subprocess.CompletedProcess[str]") -> str:
    assert played.returncode == 0, played.stdout[-4000:] + played.stderr
    return played.stdout


def rendering(template: Path, **given: Any) -> dict[str, Any]:
    """Return the task that says what a template comes to; it needs no process on any machine."""
    told = f"{{{{ lookup('ansible.builtin.template', '{template}') | b64encode }}}}"
    return {"ansible.builtin.debug": {"msg": told}, "vars": {**given, "ansible_managed": "us"}}


def rendered(played: "subprocess.CompletedProcess[str]") -> list[str]:
    return [b64decode(one).decode() for one in re.findall(r'"msg": "(\S+)"', done(played))]


_SHELL = """#!/bin/sh
PATH={folder}/bin:$PATH exec unshare --mount sh -c \
  'mount --bind {folder} {place} && exec /bin/sh "$@"' sh "$@"
"""


class Machines:
    """Machines that are folders of this one: each sees its own at the same path; needs root."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can mount")
        self.folder = folder
        self.away: set[str] = set()
        """Those that cannot be reached."""
        self._machines = names
        self.place = folder / "place"
        self.place.mkdir()
        for name in names:
            (folder / name).mkdir()
            shell = folder / f"{name}.sh"
            shell.write_text(_SHELL.format(folder=folder / name, place=self.place), "utf-8")
            shell.chmod(0o755)

    def play(
        self,
        plays: Sequence[Mapping[str, Any]],
        extra: Mapping[str, Any],
        groups: Mapping[str, Sequence[str]],
        *arguments: str,
    ) -> "subprocess.CompletedProcess[str]":
        hosts = {
            name: {"ansible_shell_executable": str(self.folder / f"{name}.sh")}
            for name in self._machines
        }
        for name in self.away:  # nobody listens there
            hosts[name] |= {"ansible_connection": "ssh", "ansible_host": "127.0.0.1"}
            hosts[name] |= {"ansible_port": "1"}
        common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory = {"all": {"hosts": hosts, "vars": common}} | {
            group: {"hosts": dict.fromkeys(names)} for group, names in groups.items()
        }
        serially = [{"serial": 1, "gather_facts": False, **one} for one in plays]
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(inventory), "utf-8")
        (self.folder / "play.yml").write_text(yaml.safe_dump(serially), "utf-8")
        told = ["--inventory", self.folder / "hosts.yml", "--extra-vars", json.dumps(extra)]
        return play([*told, *arguments, self.folder / "play.yml"])
