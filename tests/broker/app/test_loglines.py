import json
import logging
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


def test_what_ails_a_program_is_told_as_text_whatever_it_names() -> None:
    page = health_page(NASTY)

    assert page.body.isascii()
    assert b"\x1b" not in page.body
