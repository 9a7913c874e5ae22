"""Plays of the roles, by the real Ansible."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.ansible.test_argument_specs import PLAYBOOK, ROLES

__all__ = ["done", "play"]


def play(words: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    """Play what the words of a command line name, from the folder of the playbooks."""
    return subprocess.run(
        [PLAYBOOK, *words], cwd=ROLES.parent, capture_output=True, text=True, check=False
    )


def done(played: "subprocess.CompletedProcess[str]") -> str:
    """Return what a play that must have succeeded has said."""
    assert played.returncode == 0, played.stdout[-4000:] + played.stderr
    return played.stdout
