"""A record of the log is one line, whatever it holds."""

import json
import logging
import subprocess
import sys
from datetime import datetime

import pytest

from broker.app.logs import JsonLines, TextLines

PROGRAM = """
import click
from broker.app.exits import ConfigurationError
from broker.app.program import log_to_stderr, run
from shipper.settings import ShipperSettings

@click.command("example")
def example():
    log_to_stderr(ShipperSettings(log_format="json"))
    raise ConfigurationError("mend\\nit")

run(example, [])
"""


def test_the_last_word_of_a_program_that_logs_json_is_an_object_too() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, check=False)

    last = json.loads(done.stderr)
    assert done.returncode == 78
    assert (last["level"], last["logger"], last["message"]) == ("critical", "example", "mend\nit")


NASTY = "/log/a\nERROR shipper: forged\x1b[2J\x00\u2028\udcff.log"


def record(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    trace = (type(error), error, None) if error else None
    made = logging.LogRecord("shipper.agent", logging.WARNING, "x", 1, message, arguments, trace)
    made.created = 1_700_000_000.25
    return made


def test_a_json_line_says_when_how_bad_who_and_what() -> None:
    line = JsonLines().format(record("%s: %d bytes", "/log/a", 3))

    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "warning",
        "logger": "agent",
        "message": "/log/a: 3 bytes",
    }
    assert datetime.fromisoformat(json.loads(line)["time"]).utcoffset() is not None


@pytest.mark.parametrize("form", [JsonLines(), TextLines()])
def test_control_characters_never_break_a_line_nor_act_on_a_terminal(
    form: logging.Formatter,
) -> None:
    line = form.format(record("%s: is followed", NASTY))
    traced = form.format(record("failed", error=OSError(f"no {NASTY}")))

    assert (line.isprintable(), line.isascii(), "forged" in line) == (True, True, True)
    assert all(part.isprintable() for part in traced.split("\n"))
