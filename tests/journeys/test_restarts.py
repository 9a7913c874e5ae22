"""What the programs log of a broker that restarts, as it does after an update."""

import re
from functools import partial
from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tests.support.received import read_received
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.long]

PARTITIONS = (0, 1, 2, 3)


def test_each_restart_of_the_broker_is_one_warning_of_each_program(
    suite: Suite, tmp_path: Path
) -> None:
    received = partial(read_received, suite.output, "web01")
    suite.partitions = len(PARTITIONS)
    broker, log = suite.start_broker(), tmp_path / "app.log"
    log.write_bytes(b"")
    receiver = suite.start_receiver(PARTITIONS)
    shipper = suite.start_shipper("web01", [log])
    suite.wait_for_receiver(receiver, PARTITIONS)
    for number, end in enumerate((broker.stop, broker.kill, broker.stop), 1):
        with log.open("ab") as file:
            file.write(b"line %d\n" % number)
        is_received = lambda number=number: len(received().splitlines()) == number  # noqa: E731
        wait_until("the line is received", is_received, 60, [receiver, shipper])
        times = {one: one.read_log().count("broker away") for one in (receiver, shipper)}
        end()
        for one, before in times.items():
            is_said = lambda: one.read_log().count("broker away") > before  # noqa: B023, E731
            wait_until("the broker is missed", is_said, 60, [one])
        broker.start()
        suite.wait_for_broker(broker)
    with log.open("ab") as file:
        file.write(b"last\n")
    wait_until("all is received", lambda: b"last" in received(), 60)

    for program in (receiver, shipper):
        bad = re.findall(r"^(?:WARNING|ERROR|CRITICAL) .*", program.read_log(), re.MULTILINE)
        assert len(bad) == 3, bad
        assert all(line.startswith("WARNING client: broker away: ") for line in bad)
        assert program.read_log().count(" is back") == 3
