"""What journald is told of how bad a line is, by a program whose standard error it is, as systemd connects it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging, sys
import click
from broker.app.exits import ConfigurationError
from broker.app.program import log_to_stderr, run
from shipper.settings import ShipperSettings

@click.command("example")
def example():
    log_to_stderr(ShipperSettings(log_format=sys.argv[1], log_level="debug"))
    own = logging.getLogger("own")
    own.debug("d"), own.info("i"), own.warning("w"), own.error("e\\nand more"), own.critical("c")
    try:
        1 / 0
    except ZeroDivisionError:
        own.exception("x")
    raise ConfigurationError("mend it")

run(example, [])
"""


def said(form: str, identity: str | None = None) -> list[str]:
    """Run the program with a socket as its standard error, as journald's is, and return what came out of that."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        there = os.fstat(theirs.fileno())
        known = {"JOURNAL_STREAM": identity or f"{there.st_dev}:{there.st_ino}"}
        subprocess.run(
            [sys.executable, "-c", PROGRAM, form],
            env={**os.environ, **known, "PYTHONPATH": str(Path(__file__).parents[3])},
            stderr=theirs,
            timeout=180,
            check=False,
        )
        theirs.close()
        with ours.makefile() as lines:
            return lines.read().splitlines()


def test_each_line_in_the_journal_has_its_grade() -> None:
    lines = said("text")

    assert lines[:6] == [
        "<7>DEBUG own: d",
        "<6>INFO own: i",
        "<4>WARNING own: w",
        "<3>ERROR own: e\\nand more",
        "<2>CRITICAL own: c",
        "<3>ERROR own: x",
    ]
    assert lines[6] == "<3>Traceback (most recent call last):"
    assert lines[-1] == "<3>example: mend it"
    assert all(line.startswith("<3>") for line in lines[6:])


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_standard_error_that_was_sent_elsewhere_since_has_no_grades(form: str) -> None:
    assert not [line for line in said(form, "1:2") if line.startswith("<")]
