"""logreceiver's command line: one line, the right exit code, no traceback."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_logship.app.configuration import load
from nats_logship.app.exits import Exit
from nats_logship.app.secret_files import head_of
from receiver.cli import logreceiver as command
from receiver.settings import ReceiverSettings
from tests.support import forks

ZONES = "../../etc/passwd Europe Nowhere/Town /etc/localtime right/UTC posixrules"


@pytest.mark.parametrize(
    ("option", "value", "parts"),
    [
        ("--partition", "-1", ["--partition"]),
        ("--max-batch", "1KB", ["1048576"]),
        ("--path-template", "{file}", ["{host} must occur once"]),
        ("--file-mode", "0444", ["--file-mode", "0600"]),
        ("--folder-mode", "0777", ["--folder-mode", "0700"]),
        ("--owner", "nobody-of-that-name", ["is not known here"]),
        *(("--time-zone", zone, ["not known; give UTC, local"]) for zone in ZONES.split()),
    ],
)
def test_a_bad_option_is_a_usage_error(option: str, value: str, parts: list[str]) -> None:
    ended = CliRunner().invoke(command, [option, value])

    assert ended.exit_code == Exit.USAGE
    assert all(part in ended.output for part in parts), ended.output


@pytest.mark.parametrize("subcommand", ["", "offsets adopt --yes", "offsets set --to 1"])
@pytest.mark.parametrize("asked", ["all", "1,2"])
def test_a_credential_for_other_partitions_is_refused_in_one_line(
    tmp_path: Path, subcommand: str, asked: str
) -> None:
    file = tmp_path / "receiver-central.toml"
    file.write_text(f'{head_of("receiver central")}\npartition = ["0", "1"]\n')

    ended = forks.run("logreceiver", *subcommand.split(), "--config", file, "--partition", asked)

    assert ended.returncode == Exit.CONFIGURATION
    assert ended.stderr == (
        f"logreceiver: {file} is a credential for the partitions 0,1 alone: give --partition 0,1, "
        "or a credential for more\n"
    )


@pytest.mark.nats
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ("", Exit.USAGE, "--partition is required"),
        ("--partition=0 --server=nats://127.0.0.1:1", Exit.FAILED, "no broker at .*--server"),
        (
            "--partition=0,7 --server={url}",
            Exit.CONFIGURATION,
            "partition 7 does not exist.*2, 0 to 1",
        ),
    ],
    ids=["no partition", "no broker", "no such partition"],
)
def test_the_reason_of_the_end_is_one_line(
    tmp_path: Path, logs_url: str, arguments: str, code: int, reason: str
) -> None:
    words = f"{arguments.format(url=logs_url)} --once --patience=0 --output={tmp_path}/out"

    ended = forks.run("logreceiver", *words.split(), seconds=180)

    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert re.fullmatch(f"logreceiver: .*{reason}.*\n", ended.stderr), ended.stderr


def test_help_imports_no_spark() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom receiver.cli import logreceiver\n"
        "print(CliRunner().invoke(logreceiver, ['--help']).output)\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'pyspark', 'py4j', 'pyarrow'}))"
    )

    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90
    ).stdout

    assert shown.endswith("[]\n")
    for option in ("--partition", "--once", "--rotate-size", "--keep", "--compress", "status"):
        assert option in shown


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("0", (0,)), (["3,0", "3"], (0, 3)), (["1", "all"], (0, 1, 2, 3)), (2, (2,))],
)
def test_partitions_may_be_given_in_any_form(given: object, wanted: tuple[int, ...]) -> None:
    settings = load(ReceiverSettings, {"partition": given}, None)

    assert settings.select_partitions(4) == wanted


def test_local_is_the_time_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")

    assert load(ReceiverSettings, {"time_zone": "local"}, None).time_zone == "America/New_York"
