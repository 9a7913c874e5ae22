"""Plays of the roles, by the real Ansible."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.ansible.argument_specs import ROLES

__all__ = ["INTERPRETER", "done", "play", "play_here"]

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
INTERPRETER = f"ansible_python_interpreter={sys.executable}"


def play(words: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    """Play what the words of a command line name, from the folder of the playbooks."""
    return subprocess.run(
        [PLAYBOOK, *words],
        cwd=ROLES.parent,
        # Ansible refuses any other encoding, whoever starts the tests
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def play_here(
    folder: Path, tasks: Sequence[Mapping[str, Any]]
) -> "subprocess.CompletedProcess[str]":
    """Play tasks on this machine."""
    path = folder / "play.yml"
    facts = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    path.write_text(yaml.safe_dump([facts]), "utf-8")
    return play(["--inventory", "localhost,", path, "--extra-vars", INTERPRETER])


def done(played: "subprocess.CompletedProcess[str]") -> str:
    """Return what a play that must have succeeded has said."""
    assert played.returncode == 0, played.stdout[-4000:] + played.stderr
    return played.stdout
