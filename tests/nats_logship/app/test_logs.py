"""A record of the log is one line, and journald gets its priority."""

import json
import logging
import os
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from nats_logship.app.logs import JsonLines, TextLines

PROGRAM = """
import logging, sys
import click
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.program import log_to_stderr, run
from shipper.settings import ShipperSettings

@click.command("example")
def example():
    log_to_stderr(ShipperSettings(log_format=sys.argv[1], log_level="debug"))
    logging.getLogger("asyncio").warning("a connection with TLS that nats-py has ended")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL):
        logging.getLogger("own").log(level, "x\\ny")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("own").exception("x")
    raise ConfigurationError("change\\nit")

run(example, [])
"""


def run_with_stderr(form: str, *, is_journal: bool = True) -> list[str]:
    """Return the lines of a program on its standard error, a socket as that of journald."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        there = os.fstat(theirs.fileno())
        known = {"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}" if is_journal else "1:2"}
        environment = {**os.environ, **known, "PYTHONPATH": str(Path(__file__).parents[3])}
        program = [sys.executable, "-c", PROGRAM, form]
        done = subprocess.run(program, env=environment, stderr=theirs, timeout=180)
        theirs.close()
        with ours.makefile() as lines:
            assert done.returncode == 78
            return lines.read().splitlines()


def test_each_line_in_the_journal_has_its_priority() -> None:
    lines = run_with_stderr("text")

    assert lines[:6] == [
        *("<7>DEBUG own: x\\ny", "<6>INFO own: x\\ny", "<4>WARNING own: x\\ny"),
        *("<2>CRITICAL own: x\\ny", "<3>ERROR own: x", "<3>Traceback (most recent call last):"),
    ]
    assert lines[-1] == "<3>example: change\\nit"
    assert all(line.startswith("<3>") for line in lines[5:])


def test_json_outside_the_journal_has_no_priorities_in_the_last_error() -> None:
    *_, last = map(json.loads, run_with_stderr("json", is_journal=False))

    assert (last["level"], last["logger"], last["message"]) == ("critical", "example", "change\nit")


NASTY = "/log/a\nERROR shipper: forged\x1b[2J\x00\u2028\udcff.log"


def record(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    trace = (type(error), error, None) if error else None
    made = logging.LogRecord("shipper.agent", logging.WARNING, "x", 1, message, arguments, trace)
    made.created = 1_700_000_000.25
    return made


def test_a_json_line_has_time_level_logger_and_message() -> None:
    line = JsonLines().format(record("%s: %d bytes", "/log/a", 3))

    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "warning",
        "logger": "agent",
        "message": "/log/a: 3 bytes",
    }
    assert datetime.fromisoformat(json.loads(line)["time"]).utcoffset() is not None


@pytest.mark.parametrize("form", [JsonLines(), TextLines()])
def test_control_characters_neither_break_a_line_nor_act_on_a_terminal(
    form: logging.Formatter,
) -> None:
    line = form.format(record("%s: is followed", NASTY))
    traced = form.format(record("failed", error=OSError(f"no {NASTY}")))

    assert (line.isprintable(), line.isascii(), "forged" in line) == (True, True, True)
    assert all(part.isprintable() for part in traced.split("\n"))
