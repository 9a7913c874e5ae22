"""The command line of logbroker: help, versions, what is missing, and what `apply` does."""

import os
import re
import subprocess
import sys

import click
import pytest

from broker.cli import group
from broker.settings import RUN_FIELDS, BrokerSettings
from tests.broker.conftest import Call, ask, logbroker
from tests.support.processes import installed

WITHOUT = (
    "import sys\nfor name in {names}: sys.modules[name] = None\nfrom broker.cli import main\nmain()"
)


@pytest.mark.parametrize("name", group.list_commands(click.Context(group)))
def test_a_command_is_called_by_its_own_name(name: str) -> None:
    command = group.get_command(click.Context(group), name)

    assert command is not None
    assert command.name == name
    assert "pip install" not in (command.help or "")


def test_the_help_has_sections_and_the_version_is_also_nats_servers() -> None:
    shown = logbroker("-h").stdout
    ours, server = logbroker("--version").stdout.splitlines()

    assert [line[:-1] for line in shown.splitlines() if re.fullmatch(r"\w+:", line)] == [
        *("Options", "Running", "Configuring", "Inspecting", "Changing")
    ]
    assert re.fullmatch(r"logbroker \d+\.\d+\.\d+", ours)
    assert re.fullmatch(r"nats-server \d+\.\d+\.\d+", server)


def test_a_missing_library_is_named_with_the_extra_that_installs_it() -> None:
    code = WITHOUT.format(names=["cryptography", "nacl"])
    listed, runs = (
        subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        for words in (["--help"], ["tls", "init", "--store-dir", "store"])
    )

    assert "status" in listed.stdout
    assert (listed.returncode, runs.returncode) == (0, 78)
    assert runs.stderr == (
        "logbroker: tls needs the package cryptography; pip install 'nats-logship[broker]'\n"
    )


@pytest.mark.parametrize("command", ["status", "apply"])
def test_an_unreachable_broker_is_one_line_and_exit_code_1(command: str) -> None:
    ended = logbroker(command, "--server", "nats://127.0.0.1:1")

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "no broker at nats://127.0.0.1:1" in ended.stderr


@pytest.mark.nats
@pytest.mark.parametrize(
    "command",
    ["get", "get --json", "rm 1 --yes", "status", "status --json", "cheat", "--help", "--version"],
)
def test_a_full_disk_ends_a_command_with_one_line_before_a_message_is_removed(
    call: Call, logs_url: str, command: str
) -> None:
    ask(logs_url, ("logs.p0.web01", b"a line\n"))
    server = [] if command in {"cheat", "--help", "--version"} else ["--server", logs_url]
    words = [installed("logbroker"), *command.split(), *server]

    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file
        ended = subprocess.run(
            words,
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            check=False,
        )

    assert ended.returncode == 1
    said = "cannot write to standard output: No space left on device"
    assert ended.stderr.decode().splitlines() == [f"logbroker: {said}"]
    assert call("get", "1").stdout.endswith("a line\n")


def test_the_help_of_run_fits_on_two_screens_and_has_every_option() -> None:
    shown = logbroker("run", "--help").stdout.splitlines()
    words = set(" ".join(shown).split())
    of_the_file = {
        name
        for name, field in BrokerSettings.model_fields.items()
        if name in ("nats", "console") or dict(field.json_schema_extra or {}).get("file_only")
    }

    assert len(shown) <= 104
    for title in ("Server:", "Streams:", "Security:", "Cluster:", "Other sites:", "Logging:"):
        assert title in shown
    for name in RUN_FIELDS:
        assert (f"--{name.replace('_', '-')}" in words) == (name not in of_the_file)
    assert {"1d]", "512MiB]"} <= words  # as defaults are shown


@pytest.mark.nats
def test_apply_changes_what_is_given_and_nothing_else(call: Call, logs_url: str) -> None:
    call("apply", "--max-age", "3d", "--discard", "old", "--max-bytes", "2GB")

    changed = call("apply", "--max-bytes", "3GB")
    same = call("apply", "--max-age", "3d", "--discard", "old", "--max-bytes", "3GB", "--dry-run")
    site = call("apply", "--site", "hub", "--source", "branch")
    with_site = call("apply", "--site", "hub", "--discard", "new")
    without = logbroker("apply", "--source", "branch", "--server", logs_url)

    assert changed.stdout.count("+ ") == 1, changed.stdout
    assert "+ max_bytes" in changed.stdout
    assert same.stdout == "nothing to do\n"
    assert "+ sources" in site.stdout, site.stderr
    assert with_site.stdout.count("+ ") == with_site.stdout.count("+ discard") == 1
    assert (without.returncode, "--source needs --site" in without.stderr) == (78, True)


@pytest.mark.nats
def test_apply_asks_before_it_deletes_and_needs_a_terminal(call: Call, logs_url: str) -> None:
    ask(logs_url, *[("logs.p1.web01", b"line\n" * 80_000)] * 3)
    options = ("apply", "--partitions", "2", "--discard", "old", "--max-bytes", "1MiB")

    dry, refused, done = (call(*options, *more) for more in (["--dry-run"], [], ["--yes"]))

    assert [one.returncode for one in (dry, refused, done)] == [0, 2, 0]
    assert "    ! deletes the oldest beyond max_bytes 1.0 MiB" in dry.stdout
    assert refused.stdout == done.stdout
    assert "--yes" in refused.stderr
