"""The command line: one line for whatever a person must mend, the right exit code, and quick help."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from shipper.cli import logshipper
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
    assert float(cpu) < 0.5
    assert late == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        *(("-", *option) for option in (("--from", "end"), ("--exclude", "/log/*.gz"))),
        ("-", "--ignore-older", "1d"),
        *(("x", "--host", host) for host in ("../../etc/x", "a b", "a..b", ".", "a*", "x" * 300)),
        *(("x", "--compression", "gzip"), ("x", "--max-line", "1"), ("x", "--grace", "soon")),
        *(("x", "--round-size", "x"), ("x", "--server", "nats://a:b"), ("x", "--flie", "x")),
        *(("x", "--include-lines", "[a"), ("x", "--exclude-lines", "a(")),
    ],
    ids=" ".join,
)
def test_what_cannot_be_understood_is_a_usage_error_that_names_the_option(
    arguments: tuple[str, ...],
) -> None:
    done = CliRunner().invoke(logshipper, ["--file", *arguments])

    assert done.exit_code == 2
    assert arguments[1] in done.output


def test_errors_are_one_line_each(tmp_path: Path, free_port: Callable[[], int]) -> None:
    config, log = tmp_path / "shipper.toml", tmp_path / "a.log"
    config.write_text('file = ["x"]\nexclude_lines = ["good", "a("]\n')
    log.write_text("line\n")

    usage, bad_pattern = fails(2, "--once"), fails(78, "--config", config)
    began = time.monotonic()
    server = ("--server", f"nats://127.0.0.1:{free_port()}")
    no_broker = fails(1, "--file", log, *server, "--once", "--patience", "1s")

    assert "--file is required" in usage
    assert "--help" in usage
    assert all(words in bad_pattern for words in ("exclude_lines", "'a('", "unterminated"))
    assert "no broker at nats://127.0.0.1" in no_broker
    assert "logbroker run" in no_broker
    assert time.monotonic() - began < 10
