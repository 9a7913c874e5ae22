"""The command line: one line for whatever a person must mend, the right exit code, and quick help."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    def run(
        *arguments: object, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "shipper", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=180,
            cwd=ROOT,
            check=False,
            env={
                **os.environ,
                "LOGSHIPPER_STATE_DIR": str(tmp_path / "state"),
                **(environment or {}),
            },
        )

    return run


def assert_one_line(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("logshipper: ")
    for word in words:
        assert word in done.stderr


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
    ("arguments", "words"),
    [
        (("--once",), ("--file is required", "--help")),
        (("--flie", "x"), ("--flie",)),
        *(
            (("--file", "-", *option), (option[0], "standard input"))
            for option in (("--from", "end"), ("--exclude", "/log/*.gz"), ("--ignore-older", "1d"))
        ),
        *(
            (("--file", "x", "--host", host), ("--host", "host name"))
            for host in ("../../etc/x", "a b", "a..b", ".", "a*", "a>", "x" * 300)
        ),
        *(
            (("--file", "x", *option), (option[0],))
            for option in (
                ("--compression", "gzip"),
                ("--max-line", "1"),
                ("--grace", "soon"),
                ("--round-size", "x"),
                ("--server", "nats://a:b"),
                ("--include-lines", "[a"),
                ("--exclude-lines", "a("),
            )
        ),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_what_cannot_be_understood_is_a_usage_error(
    call: Call, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(call(*arguments), 2, *words)


def test_a_bad_pattern_in_a_file_is_a_configuration_error_that_names_it(
    call: Call, tmp_path: Path
) -> None:
    config = tmp_path / "shipper.toml"
    config.write_text('file = ["x"]\nexclude_lines = ["good", "a("]\n')

    assert_one_line(call("--config", config), 78, "exclude_lines", "'a('", "unterminated")


def test_once_without_a_broker_gives_up_after_its_patience(
    call: Call, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    (tmp_path / "a.log").write_text("line\n")
    began = time.monotonic()

    done = call(
        *("--file", tmp_path / "a.log", "--server", f"nats://127.0.0.1:{free_port()}"),
        *("--once", "--patience", "1s"),
    )

    assert_one_line(done, 1, "no broker at nats://127.0.0.1", "logbroker run")
    assert time.monotonic() - began < 10
