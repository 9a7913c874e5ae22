"""A record of the log is one line, whatever it holds, and journald learns how bad it is."""

import json
import logging
import os
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from broker.app.logs import JsonLines, TextLines

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


def test_a_standard_error_that_was_sent_elsewhere_since_has_no_grades() -> None:
    assert not [line for line in said("json", "1:2") if line.startswith("<")]


NASTY = "/log/a\nERROR shipper: forged\x1b[2J\x00\u2028\udcff.log"


def record(
    message: str, *arguments: object, error: BaseException | None = None
) -> logging.LogRecord:
    trace = (type(error), error, None) if error else None
    made = logging.LogRecord(
        "shipper.agent", logging.WARNING, "agent.py", 1, message, arguments, trace
    )
    made.created = 1_700_000_000.25
    return made


def test_a_json_line_says_when_how_bad_who_and_what() -> None:
    line = JsonLines().format(record("%s: %d bytes", "/log/a", 3))

    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "warning",
        "logger": "shipper.agent",
        "message": "/log/a: 3 bytes",
    }
    assert datetime.fromisoformat(json.loads(line)["time"]).utcoffset() is not None


@pytest.mark.parametrize("form", [JsonLines(), TextLines()])
def test_control_characters_in_a_path_never_break_a_line(form: logging.Formatter) -> None:
    line = form.format(record("%s: is followed", NASTY))

    assert line.isprintable()
    assert line.isascii()
    assert "forged" in line


def test_a_traceback_does_not_act_on_a_terminal() -> None:
    line = TextLines().format(record("failed", error=OSError(f"no {NASTY}")))

    assert "\x1b" not in line
    assert r"\x1b[2J" in line
