"""Seeded kills with -9 while files are rotated and another receiver is the standby.

Every program once, then any process, also the JVM and workers; `LOGSHIP_ROUNDS=100` is more seeds.
"""

import os
import random
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import pytest

from tests.support.oracle import expect_all
from tests.support.processes import Process, wait_until
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(720)]

HOSTS = ("kill01", "kill02.example.net")
FILES = ("access.log", "app.log", "audit.log")
ROUNDS = int(os.environ.get("LOGSHIP_ROUNDS", "1"))
KILLS = 7


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_line_arrives_once_and_in_order_whichever_process_is_killed(
    suite: Suite, seed: int
) -> None:
    chance = random.Random(seed)
    files = {host: [suite.folder / "hosts" / host / name for name in FILES] for host in HOSTS}
    receivers = [_receiver(suite, name) for name in ("one", "two")]  # which wait for the broker
    programs = [suite.start_broker(), *receivers]
    is_owned = lambda: all(suite.offset(number) for number in (0, 1))  # noqa: E731
    wait_until("a receiver owns the partitions", is_owned, 150, receivers)
    rate = chance.choice((20, 200, 700))
    with Traffic([file for own in files.values() for file in own], rate, seed) as traffic:
        programs += [suite.start_shipper(host, own) for host, own in files.items()]
        for program in chance.sample(programs, len(programs)):
            _kill([program.pid], programs, chance)
        for _ in range(KILLS):
            _kill(chance.choice(programs).tree(), programs, chance)
    written = {host: [traffic.written[file] for file in own] for host, own in files.items()}
    assert all(all(sources) for sources in written.values())
    expect_all(suite.output, written, meanwhile=partial(_start_again, programs))
    assert list(suite.output.glob("*.log.0*")), "nothing was rotated"
    assert [program.stop() for program in reversed(programs)] == [0] * len(programs)


def _receiver(suite: Suite, name: str) -> Process:
    arguments = ["--partition", "all", "--server", suite.url, "--output", suite.output]
    arguments += ["--state-dir", suite.folder / "state" / "receiver", "--compress", "zstd"]
    arguments += ["--standby", "--takeover-after", "2s", "--rotate-size", "20kB"]
    return suite.start_program("logreceiver", f"logreceiver-{name}", arguments)


def _kill(victims: Sequence[int], programs: Sequence[Process], chance: random.Random) -> None:
    """Kill one of the processes, and start the programs again that ended by that."""
    time.sleep(chance.uniform(0.05, 2.0))
    with suppress(ProcessLookupError, IndexError):
        os.kill(chance.choice(victims), signal.SIGKILL)
    time.sleep(chance.choice([0, 0.3]))
    _start_again(programs)


def _start_again(programs: Iterable[Process]) -> None:
    for program in programs:
        if not program.is_running():
            program.start()
