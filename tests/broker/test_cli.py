"""Each command of logbroker is where the table says, and one does not need what another one is made with."""

import re
import subprocess
import sys

import click
import pytest

from broker.cli import group

WITHOUT = (
    "import sys\nfor name in {names}: sys.modules[name] = None\nfrom broker.cli import main\nmain()"
)
EXTRA = ["cryptography", "nacl"]


def called(*words: str) -> "subprocess.CompletedProcess[str]":
    code = WITHOUT.format(names=EXTRA)
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("name", list(group.modules))
def test_a_command_is_called_by_its_own_name(name: str) -> None:
    command = group.get_command(click.Context(group), name)

    assert command is not None
    assert command.name == name
    assert "pip install" not in (command.help or "")


def test_the_help_has_sections_and_h_shows_it() -> None:
    shown = called("-h").stdout

    assert [line[:-1] for line in shown.splitlines() if re.fullmatch(r"\w+:", line)] == [
        *("Options", "Running", "Declaring", "Looking", "Changing"),
    ]
    assert called("status", "-h").stdout == called("status", "--help").stdout


def test_the_version_names_that_of_nats_server_too() -> None:
    ours, server = called("--version").stdout.splitlines()

    assert re.fullmatch(r"logbroker \d+\.\d+\.\d+", ours)
    assert re.fullmatch(r"nats-server \d+\.\d+\.\d+", server)


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it() -> None:
    listed, runs = called("--help"), called("tls", "init", "--store-dir", "store")

    assert listed.returncode == 0
    assert "status" in listed.stdout
    assert runs.returncode == 78
    assert runs.stderr == (
        "logbroker: tls needs the package cryptography; pip install 'nats-logship[broker]'\n"
    )
