"""Mistakes of operators, in the real programs: one line that says what to do, no traceback."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nats_logship.app.exits import Exit
from tests.support import forks
from tests.support.ports import free_port

NOBODY = ("--server", "nats://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ("logreceiver", *NOBODY, "verify", "--output", "."),
            Exit.USAGE,
            "--server belongs behind the command: `logreceiver verify --server …`",
        ),
        (
            ("logreceiver", "--partition", "0", "--rotate-size", "0x"),
            Exit.USAGE,
            "--rotate-size: '0x' is not a size such as 64KiB, 100MB or 2GiB",
        ),
        (
            ("logshipper", "--file", "x", "--round-size", "1"),
            Exit.USAGE,
            "--round-size: '1' must be at least 65536",
        ),
        (
            ("logbroker", "status", "--server", "nats://nobody.invalid"),
            Exit.FAILED,
            "no broker at nats://nobody.invalid: ",
        ),
        (
            ("logreceiver", "search", "--no-stream", "--table", "/nowhere/table"),
            Exit.FAILED,
            "there is no table in /nowhere/table; check --table",
        ),
        (
            ("logbroker", "tls", "renew", "--store-dir", "/nowhere"),
            Exit.CONFIGURATION,
            "check --store-dir, or make the file with `logbroker tls init`",
        ),
        (
            ("logbroker", "requeue", "/nowhere/file", *NOBODY),
            Exit.CONFIGURATION,
            "give a file of a receiver's quarantine",
        ),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    arguments: tuple[str, ...], code: Exit, text: str
) -> None:
    done = forks.run(*arguments)

    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert "[Errno" not in done.stderr


def test_a_port_in_use_is_named_once() -> None:
    import socket

    with socket.create_server(("127.0.0.1", free_port())) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = forks.run("logbroker", "console", *NOBODY, "--listen", address)

    assert done.returncode == Exit.CONFIGURATION
    assert done.stderr == (
        f"logbroker: cannot listen on {address}: Address already in use; choose another --listen\n"
    )


def test_an_address_that_the_machine_may_have_later_lets_a_service_start_again() -> None:
    file, address = ("--file", "/absent.log"), "192.0.2.1:9464"  # RFC 5737: nobody has it

    done = forks.run("logshipper", *NOBODY, *file, "--host", "web01", "--listen", address)

    assert done.returncode == Exit.FAILED
    reason = "Cannot assign requested address; check --listen"
    assert f"cannot listen on {address}: {reason}" in done.stderr


@pytest.mark.parametrize("module", ["broker", "shipper", "receiver"])
def test_an_interrupt_while_a_program_starts_leaves_no_traceback(
    tmp_path: Path, module: str
) -> None:
    """A module that the program imports early sends the signal of Ctrl-C."""
    (tmp_path / "click").mkdir()
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "click" / "__init__.py").write_text(code)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}

    done = subprocess.run(
        [sys.executable, "-m", module, "status"],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
