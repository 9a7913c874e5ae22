"""The command line of logbroker: help, versions, what is missing, and what `apply`, `export` and `import` do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from broker.cli import group
from tests.broker.conftest import Call, ask, call_logbroker

WITHOUT = (
    "import sys\nfor name in {names}: sys.modules[name] = None\nfrom broker.cli import main\nmain()"
)


@pytest.mark.parametrize("name", group.list_commands(click.Context(group)))
def test_a_command_is_called_by_its_own_name(name: str) -> None:
    command = group.get_command(click.Context(group), name)

    assert command is not None
    assert command.name == name
    assert "pip install" not in (command.help or "")


def test_the_help_has_sections_and_the_version_names_that_of_nats_server_too(
    logbroker_inside: Call,
) -> None:
    shown = logbroker_inside("-h").stdout
    ours, server = call_logbroker("--version").stdout.splitlines()

    assert [line[:-1] for line in shown.splitlines() if re.fullmatch(r"\w+:", line)] == [
        *("Options", "Running", "Declaring", "Looking", "Changing"),
    ]
    assert re.fullmatch(r"logbroker \d+\.\d+\.\d+", ours)
    assert re.fullmatch(r"nats-server \d+\.\d+\.\d+", server)


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it() -> None:
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


def test_a_bad_option_is_one_line_and_exit_code_2(tmp_path: Path, logbroker_inside: Call) -> None:
    ended = logbroker_inside("run", "--store-dir", tmp_path / "s", "--partitions", "0")

    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--partitions" in ended.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("command", ["status", "apply"])
def test_a_broker_that_is_away_is_one_line_and_exit_code_1(
    logbroker_inside: Call, command: str
) -> None:
    ended = logbroker_inside(command, "--server", "nats://127.0.0.1:1")

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "no broker at nats://127.0.0.1:1" in ended.stderr


@pytest.mark.nats
def test_apply_sets_up_a_foreign_server_once(logbroker_inside: Call, fresh_url: str) -> None:
    options = ("apply", "--server", fresh_url, "--partitions", "2")

    planned = json.loads(logbroker_inside(*options, "--dry-run", "--json").stdout)
    dry, first, second = (logbroker_inside(*options, *more) for more in (["--dry-run"], [], []))

    assert [one.returncode for one in (dry, first, second)] == [0, 0, 0]
    assert {one["kind"] for one in planned} == {"stream", "entry"}
    assert {one["action"] for one in planned} == {"create"}
    assert "+ create stream LOGS" in first.stdout
    assert dry.stdout == first.stdout
    assert second.stdout == "nothing to do\n"


def test_the_help_of_run_fits_on_two_screens(logbroker_inside: Call) -> None:
    shown = logbroker_inside("run", "--help").stdout.splitlines()

    assert len(shown) <= 104
    for title in ("Server:", "Streams:", "Security:", "Cluster:", "Other sites:", "Logging:"):
        assert title in shown


@pytest.mark.nats
def test_what_deletes_is_asked_about_and_refused_where_nobody_can_answer(
    logbroker_inside: Call, logs_url: str
) -> None:
    ask(logs_url, *[("logs.p1.web01", b"line\n")] * 3)
    options = ("apply", "--server", logs_url, "--partitions", "2")
    options += ("--discard", "old", "--max-bytes", "100")

    dry, refused, done = (
        logbroker_inside(*options, *more) for more in (["--dry-run"], [], ["--yes"])
    )

    assert [one.returncode for one in (dry, refused, done)] == [0, 2, 0]
    assert "    ! deletes the oldest beyond max_bytes 100" in dry.stdout
    assert refused.stdout == done.stdout
    assert "--yes" in refused.stderr


@pytest.mark.nats
def test_the_configuration_goes_out_as_files_and_comes_back(
    logbroker_inside: Call, logs_url: str, tmp_path: Path
) -> None:
    to = ("--server", logs_url)
    folder = tmp_path / "configuration"

    exported = logbroker_inside("export", *to, folder)
    stream = json.loads((folder / "LOGS.json").read_text("utf-8"))
    (folder / "LOGS.json").write_text(json.dumps(stream | {"max_age": 10**15}), "utf-8")
    imported = logbroker_inside("import", *to, folder)

    assert [one.returncode for one in (exported, imported)] == [0, 0]
    assert sorted(path.name for path in folder.iterdir()) == [
        "KV_LOGS_CONFIG.json",
        "KV_LOGS_OFFSETS.json",
        "KV_LOGS_POSITIONS.json",
        "LOGS.json",
    ]
    assert imported.stdout == "~ update stream LOGS\n    - max_age: 1d  + max_age: 11d13h46m40s\n"
