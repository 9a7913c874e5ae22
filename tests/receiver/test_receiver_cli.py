"""logreceiver's command line: one line, the right exit code, no traceback."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_logship.app.configuration import load
from nats_logship.app.exits import Exit
from receiver.cli import logreceiver as command
from receiver.settings import ReceiverSettings
from tests.support import forks


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        pytest.param(["--partition", "-1"], ["--partition"], id="negative"),
        pytest.param(["--partition", "0", "--max-batch", "1KB"], ["1048576"], id="too small"),
        pytest.param(["--path-template", "{file}"], ["{host} must occur once"], id="template"),
        pytest.param(["--file-mode", "0444"], ["--file-mode", "0600"], id="mode without writing"),
        pytest.param(["--folder-mode", "0777"], ["--folder-mode", "0700"], id="mode for all"),
        pytest.param(["--owner", "nobody-of-that-name"], ["is not known here"], id="user"),
        pytest.param(
            ["--time-zone", "../../etc/passwd"], ["not known; give UTC, local"], id="zone"
        ),
        *(
            pytest.param(["--time-zone", zone], ["not known; give UTC, local"], id=f"zone {zone}")
            for zone in ("Europe", "Nowhere/Town", "/etc/localtime", "right/UTC", "posixrules")
        ),
    ],
)
def test_a_bad_option_is_a_usage_error(arguments: list[str], parts: list[str]) -> None:
    ended = CliRunner().invoke(command, arguments)

    assert ended.exit_code == Exit.USAGE
    assert all(part in ended.output for part in parts), ended.output


@pytest.mark.nats
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        pytest.param([], Exit.USAGE, "--partition is required", id="no partition"),
        pytest.param(
            ["--partition=0", "--server=nats://127.0.0.1:1"],
            *(Exit.FAILED, "no broker at .*--server"),
            id="no broker",
        ),
        pytest.param(
            ["--partition=0,7", "--server={url}"],
            *(Exit.CONFIGURATION, "partition 7 does not exist.*2, 0 to 1"),
            id="no such partition",
        ),
    ],
)
def test_the_reason_of_the_end_is_one_line(
    tmp_path: Path, logs_url: str, arguments: list[str], code: int, reason: str
) -> None:
    options = ["--output", str(tmp_path / "out"), "--once", "--patience", "0"]
    given = (word.format(url=logs_url) for word in arguments)

    ended = forks.run("logreceiver", *given, *options, seconds=180)

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
