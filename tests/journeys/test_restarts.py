"""What the programs log on ordinary days: nothing, and a line for a broker that restarts."""

import re
import time
from functools import partial
from pathlib import Path

import pytest

from tests.pages import page
from tests.support.processes import Process, wait_until
from tests.support.received import read_received
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.long]

PARTITIONS = (0, 1, 2, 3)


def test_each_restart_of_the_broker_is_one_line_of_each_program(
    suite: Suite, tmp_path: Path
) -> None:
    received = partial(read_received, suite.output, "web01")
    suite.partitions = len(PARTITIONS)
    broker, log = suite.start_broker(), tmp_path / "app.log"
    log.write_bytes(b"")
    receiver = suite.start_receiver(PARTITIONS, "--listen", "127.0.0.1:0")
    shipper = suite.start_shipper("web01", [log], "--listen", "127.0.0.1:0")
    suite.wait_for_receiver(receiver, PARTITIONS)
    for number, end in enumerate((broker.stop, broker.kill, broker.stop), 1):
        with log.open("ab") as file:
            file.write(b"line %d\n" % number)
        is_received = lambda number=number: len(received().splitlines()) == number  # noqa: E731
        wait_until("the line is received", is_received, 60, [receiver, shipper])
        if number == 1:
            began = {one: len(one.read_log().splitlines()) for one in (receiver, shipper)}
        end()
        for program in (receiver, shipper):
            wait_until("the broker is missed", partial(misses_broker, program), 60, [program])
        broker.start()
        suite.wait_for_broker(broker)
        is_back = lambda: not any(map(misses_broker, (receiver, shipper)))  # noqa: E731
        wait_until("both are back", is_back, 60, [receiver, shipper])
    with log.open("ab") as file:
        file.write(b"last\n")
    wait_until("all is received", lambda: b"last" in received(), 60)

    for program, before in began.items():
        lines = program.read_log().splitlines()[before:]
        seconds = [
            int(one) for one in re.findall(r" is back after (\d+) s$", "\n".join(lines), re.M)
        ]
        assert len(seconds) == 3, lines
        # on a machine where a restart takes long, the reason is logged before
        assert len(lines) == 3 + sum(one >= 10 for one in seconds), lines


def test_the_programs_log_nothing_while_nothing_happens(suite: Suite, tmp_path: Path) -> None:
    """What comes each minute or at the end of an hour comes in these 80 seconds, too."""
    broker, log = suite.start_broker(), tmp_path / "app.log"
    log.write_bytes(b"line\n")
    receiver = suite.start_receiver((0, 1), "--rotate-every", "20s")
    shipper = suite.start_shipper("web01", [log])
    closed = lambda: list(suite.output.glob("web01.log.*"))  # noqa: E731
    wait_until("the line is received, and its file closed", closed, 90, [receiver, shipper])
    programs = (broker, receiver, shipper)
    before = [one.read_log() for one in programs]

    time.sleep(80)

    assert [one.read_log() for one in programs] == before


def test_programs_that_never_had_a_broker_say_what_they_leave_behind(
    suite: Suite, tmp_path: Path
) -> None:
    (log := tmp_path / "app.log").write_bytes(b"line\n")
    receiver, shipper = suite.start_receiver((0,)), suite.start_shipper("web01", [log])
    for program, last in (
        (receiver, "INFO pipeline: stopped before a partition was claimed; nothing was received"),
        (
            shipper,
            "INFO agent: stopped before files were scanned; the next start ships their lines",
        ),
    ):
        wait_until("it waits", lambda log=program: "broker away" in log.read_log(), 60, [program])  # type: ignore[misc]
        assert program.stop() == 0
        assert program.read_log().splitlines()[-1] == last


def misses_broker(program: Process) -> bool:
    return "waiting for the broker" in page(program, "/healthz")[1]
