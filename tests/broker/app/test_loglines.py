import json
import logging
import subprocess
import sys
from datetime import datetime

import pytest

from broker.app.logs import JsonLines, TextLines
from broker.app.pages import health_page

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


def test_an_exception_is_part_of_its_json_line() -> None:
    line = JsonLines().format(record("it broke", error=ValueError("why\nand how")))

    assert "\n" not in line
    assert "ValueError: why\nand how" in json.loads(line)["exception"]


@pytest.mark.parametrize("form", [JsonLines(), TextLines()])
def test_control_characters_in_a_path_never_break_a_line(form: logging.Formatter) -> None:
    line = form.format(record("%s: is followed", NASTY))

    assert line.isprintable()
    assert line.isascii()
    assert "forged" in line


def test_a_byte_that_is_no_text_does_not_make_json_that_others_refuse() -> None:
    line = JsonLines().format(record("%s", NASTY))

    json.loads(line)["message"].encode("utf-8")


def test_text_is_as_journald_wants_it() -> None:
    assert TextLines().format(record("%s", "größe")) == "WARNING shipper.agent: größe"


@pytest.mark.parametrize("program", ["shipper", "broker", "receiver"])
def test_every_program_tells_its_version(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", program, "--version"],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )

    name, version = done.stdout.splitlines()[0].split()
    assert name == {"shipper": "logshipper", "broker": "logbroker"}.get(program, "logreceiver")
    assert version[0].isdigit()


def test_a_traceback_does_not_act_on_a_terminal() -> None:
    line = TextLines().format(record("failed", error=OSError(f"no {NASTY}")))

    assert "\x1b" not in line
    assert r"\x1b[2J" in line


def test_what_ails_a_program_is_told_as_text_whatever_it_names() -> None:
    page = health_page(NASTY)

    assert page.body.isascii()
    assert b"\x1b" not in page.body
