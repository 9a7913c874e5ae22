"""The command line: errors in one line, exit codes, and a quick help."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_logship.app.configuration import load
from shipper.cli import logshipper
from shipper.settings import ShipperSettings
from tests.shipper.conftest import read_lines
from tests.shipper.logs import ROOT, run


def fails(code: int, *arguments: object) -> str:
    """Return the line that the program ends with."""
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("logshipper: ")
    return done.stderr


def test_help_takes_less_than_half_a_second_of_cpu_and_no_pyspark() -> None:
    script = (
        "import resource, sys; sys.argv = ['logshipper', '--help']\n"
        "from shipper.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
        "late = {'pyspark', 'nats', 'watchdog', 'zstandard'} & set(sys.modules)\n"
        "print('CPU', usage.ru_utime + usage.ru_stime, sorted(late))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )

    _, cpu, late = done.stdout.strip().splitlines()[-1].split(maxsplit=2)
    assert float(cpu) < 1.0  # a quarter on a quiet machine
    assert late == "[]"


@pytest.mark.nats
def test_an_agent_loads_no_library_of_tables_pages_or_keys(logs_url: str, log: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('rich', 'prometheus_client', 'aiohttp', 'nacl', 'cryptography', 'psutil'):\n"
        "    sys.modules[name] = None\n"
        "from shipper.cli import main\nmain()\n"
    )
    options = ("--file", log, "--server", logs_url, "--host", "web01", "--once")

    subprocess.run([sys.executable, "-c", script, *options], cwd=ROOT, check=True)

    assert read_lines(logs_url) == b"one\n"


@pytest.mark.parametrize(
    "arguments",
    [
        *(("-", *option) for option in (("--from", "end"), ("--exclude", "/log/*.gz"))),
        ("-", "--ignore-older", "1d"),
        *(("x", "--host", host) for host in ("../../etc/x", "a b", "a..b", ".", "a*", "x" * 300)),
        *(("x", "--compression", "gzip"), ("x", "--max-line", "1"), ("x", "--grace", "soon")),
        *(("x", "--round-size", "x"), ("x", "--server", "nats://a:b"), ("x", "--flie", "x")),
        *(("x", "--include-lines", "[a"), ("x", "--exclude-lines", "a(")),
        *(("x", "--include-lines", "x*"), ("x", "--exclude-lines", "debug|")),
        *(("x", "--priority", text) for text in ("8", "warn", "0..3")),
    ],
    ids=" ".join,
)
def test_a_bad_value_is_a_usage_error_that_names_the_option(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(logshipper, ["--file", *arguments])

    assert done.exit_code == 2
    assert arguments[1] in done.output


@pytest.mark.parametrize(
    "options",
    [
        *(["--unit", "nginx"], ["--exclude-unit", "nginx"], ["--priority", "err"]),
        *(["--journal-directory", "/x"], ["--journal-format", "json"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("command", [[], ["check"]])
def test_an_option_of_the_journal_without_journal_is_refused(
    command: list[str], options: list[str]
) -> None:
    done = CliRunner().invoke(logshipper, [*command, "--file", "x", "--once", *options])

    assert done.exit_code == 2
    assert f"{options[0]} needs --journal" in done.output


@pytest.mark.parametrize("option", ["--unit", "--exclude-unit"])
def test_a_path_is_no_unit(option: str) -> None:
    text = fails(2, "--journal", option, "/mnt/data")

    assert f"{option}: /mnt/data is a path; give the name of its unit, such as mnt-data" in text


def test_check_takes_every_option_that_shipping_takes() -> None:
    own = {option for one in logshipper.params for option in one.opts} - {"--version"}

    assert own == {option for one in logshipper.commands["check"].params for option in one.opts}


@pytest.mark.parametrize("text", ["3", '"3"', '"err"'])
def test_a_priority_is_a_name_or_a_number_as_for_journalctl(tmp_path: Path, text: str) -> None:
    config = tmp_path / "shipper.toml"
    config.write_text(f"journal = true\npriority = {text}\n")

    by_key = load(ShipperSettings, {}, config)
    by_option = load(ShipperSettings, {"journal": True, "priority": text.strip('"')}, None)

    assert by_key.journal_rules.least == by_option.journal_rules.least == 3


def test_errors_are_one_line_each(tmp_path: Path) -> None:
    config, log = tmp_path / "shipper.toml", tmp_path / "a.log"
    config.write_text('file = ["x"]\nexclude_lines = ["good", "a("]\n')
    log.write_text("line\n")

    usage, bad_pattern = fails(2, "--once"), fails(78, "--config", config)
    began = time.monotonic()
    server = ("--server", "nats://127.0.0.1:1")
    no_broker = fails(1, "--file", log, *server, "--once", "--patience", "1s")

    assert "--file is missing, or --journal" in usage
    assert "--help" in usage
    assert all(text in bad_pattern for text in ("exclude_lines", "'a('", "unterminated"))
    assert "no broker at nats://127.0.0.1" in no_broker
    assert "logbroker run" in no_broker
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("host", ["localhost", "localhost.localdomain"])
def test_a_host_name_that_many_machines_have_is_a_warning(tmp_path: Path, host: str) -> None:
    (tmp_path / "a.log").write_text("line\n")
    options = ("--file", tmp_path / "a.log", "--server", "nats://127.0.0.1:1", "--host")

    checked, ran = run("check", *options, host), run(*options, host, "--once", "--patience", "0s")
    other = run("check", *options, "web01")

    warning = f"host name {host} is not unique"
    assert f"--  {warning}" in checked.stdout
    assert f"WARNING cli: {warning}" in ran.stderr
    assert "not unique" not in other.stdout


@pytest.mark.nats
def test_check_confirms_good_settings_and_changes_nothing(tmp_path: Path, logs_url: str) -> None:
    (tmp_path / "a.log").write_text("line\n")

    done = run("check", "--host", "web01", "--file", tmp_path / "a.log", "--server", logs_url)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok  {tmp_path}/a.log: 5 bytes" in done.stdout
    assert " of 2 partitions" in done.stdout
    assert "this user may publish to logs.p" in done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "a.log"]
    assert read_lines(logs_url) == b""


@pytest.mark.nats
@pytest.mark.parametrize(
    "options", [("--file", "/proc/cpuinfo"), ("--file", "*", "--exclude", "*")]
)
def test_check_fails_if_nothing_would_be_shipped(
    tmp_path: Path, logs_url: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "a.log").write_text("line\n")
    words = [str(tmp_path / one) if one == "*" else one for one in options]

    done = run("check", "--host", "web01", *words, "--server", logs_url)

    assert "BAD nothing would be shipped; check --file\n" in done.stdout
    assert done.returncode == 1


def test_check_names_the_reason_for_each_file_that_is_left_out(tmp_path: Path) -> None:
    for name in ("a.log", "old.log", "secret.log"):
        (tmp_path / name).write_text("line\n")
    os.utime(tmp_path / "old.log", (1, 1))
    os.mkfifo(tmp_path / "pipe.log")
    options = ("--exclude", tmp_path / "secret*", "--ignore-older", "1h")
    files = ("--file", tmp_path / "*.log", tmp_path / "missing")

    done = run("check", "--host", "web01", *files, *options, "--server", "nats://127.0.0.1:1")

    found = {line[4:].partition(":")[0]: line for line in done.stdout.splitlines()}
    assert found.pop(f"{tmp_path}/a.log") == f"ok  {tmp_path}/a.log: 5 bytes"
    assert found.pop(f"{tmp_path}/secret.log").endswith("secret.log: left out by --exclude")
    assert found.pop(f"{tmp_path}/missing") == f"BAD {tmp_path}/missing: is not there yet"
    assert "--ignore-older" in found.pop(f"{tmp_path}/old.log")
    assert found.pop(f"{tmp_path}/pipe.log").startswith("-- ")
    assert [line[:4] for line in found.values()] == ["BAD "]  # the broker
    assert (done.returncode, done.stderr) == (1, "")
