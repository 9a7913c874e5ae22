"""On a terminal, log lines have a time, and long work has a line that says how far it is."""

import re
import subprocess
import sys
from pathlib import Path

from nats_logship.app.progress import Estimate
from tests.support.terminal import run_on_terminal, shown_at_the_end

PROGRAM = """
import logging, sys, time
import click
from nats_logship.app.program import log_to_stderr, run
from nats_logship.app.progress import progress
from shipper.settings import ShipperSettings

@click.command("example")
def example():
    log_to_stderr(ShipperSettings(log_format=sys.argv[1]))
    with progress("restoring LOGS\\x1b", 40) as advance:
        for step in range(40):
            advance(1)
            time.sleep(0.05)
            if step == 30:
                logging.getLogger("own.part").warning("in between")
    click.echo("restored")

run(example, [])
"""
COMMAND = [sys.executable, "-P", "-c", PROGRAM]
HERE = {"PYTHONPATH": str(Path(__file__).parents[3])}


def test_a_terminal_shows_how_far_long_work_is_and_keeps_only_the_log() -> None:
    code, written = run_on_terminal([*COMMAND, "text"], environment=HERE)

    parts = re.findall(r"restoring LOGS\\x1b: (\d+) %(, \d+s left)?(?=\r)", written)
    assert code == 0
    assert parts, written
    assert [int(one) for one, _ in parts] == sorted(int(one) for one, _ in parts)
    assert any(left for _, left in parts)
    warning, last = shown_at_the_end(written)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING part: in between", warning)
    assert last == "restored"


def test_a_log_of_json_objects_gets_no_second_time() -> None:
    _, written = run_on_terminal([*COMMAND, "json"], environment=HERE)

    assert shown_at_the_end(written)[0].startswith('{"time": "')


def test_a_program_behind_the_prompt_of_a_shell_shows_no_progress() -> None:
    shell = ["bash", "-m", "-c", '"$@" & wait', "bash", *COMMAND, "text"]

    code, written = run_on_terminal(shell, environment=HERE)

    assert (code, "%" in written) == (0, False)
    assert [line[20:] for line in shown_at_the_end(written)[:1]] == ["WARNING part: in between"]


def test_without_a_terminal_there_is_neither_a_time_nor_progress() -> None:
    done = subprocess.run(
        [*COMMAND, "text"], env=HERE, capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stderr == "WARNING part: in between\n"


def test_the_time_that_is_left_is_estimated_from_the_last_steps() -> None:
    estimate = Estimate()

    assert [estimate.note(now, left) for now, left in ((0, 1000), (0.5, 990), (2, 800))] == [
        *("", "", ", 8s left")
    ]
    assert estimate.note(3, 5000) == ""  # more has come
    assert estimate.note(5, 4000) == ", 8s left"
