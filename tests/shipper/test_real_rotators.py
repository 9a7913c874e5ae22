"""Real writers and real rotators, as the distribution has them, while the shipper is killed.

All ways of the tests that run are played at the same time, at one broker, a host each; a receiver
then receives them. A way whose programs are not installed is skipped with the packages' names.
"""

import random
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.shipper.conftest import read_stream
from tests.shipper.logs import ROOT, wait_for_log
from tests.shipper.rotators import WAYS, Rotated, Way
from tests.support import forks
from tests.support.oracle import judge
from tests.support.processes import Process, Processes, wait_until
from tests.support.received import read_received
from tests.support.suite import Suite

pytestmark = [pytest.mark.long, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

_AT_ONCE = 8


class _Play:
    """A way that is played: its writer, its rotator, and a shipper that is killed."""

    def __init__(self, way: Way, suite: Suite, processes: Processes) -> None:
        folder = suite.folder / "hosts" / way.name
        folder.mkdir(0o755)
        self.rotated = Rotated(way, folder)
        self._suite, self._processes = suite, processes
        self._chance = random.Random(way.name)
        files = [word for one in way.follow for word in ("--file", str(folder / one))]
        self._words = [sys.executable, "-m", "shipper", "--server", suite.url, *files]
        self._words += ["--host", way.name]

    def play(self) -> bytes:
        """Return what was written, all of which was shipped, as far as the shipper found it."""
        # a shipper that comes later knows nothing of what was rotated away before
        shipper = self._start("agent")
        wait_for_log(shipper, " ships on ")
        with self.rotated.being_written(self._processes):
            wait_until("the log is known", self._has_shipped, 60, [shipper])
            for _ in range(3):  # while it runs, and while it starts
                self._write()
                self.rotated.rotate()
                self._kill(shipper)
                shipper.start()
            self._write()
            self._kill(shipper)
            self._rotate_twice()
            shipper.start()
            self._write()
            self._write()
            self.rotated.rotate()
            self._kill(shipper)
            self._rotate_twice()
        last = self._start("last", "--once")
        assert last.wait(120) == 0, last.last_output()
        return self.rotated.expected()

    def _rotate_twice(self) -> None:
        for _ in range(2):
            self._write()
            self.rotated.rotate()
        self._write()

    def _write(self) -> None:
        time.sleep(self._chance.uniform(0.1, 0.7))

    def _kill(self, shipper: Process) -> None:
        time.sleep(self._chance.choice((0, 0.05, 0.5)))
        shipper.check()
        shipper.kill()

    def _has_shipped(self) -> bool:
        subject = f"logs.*.{self.rotated.way.name}"
        return any(one.lines for one in self._suite.ask(partial(read_stream, subject=subject)))

    def _start(self, name: str, *more: str) -> Process:
        words = [*self._words, *more]
        return self._processes.start(f"{name}-{self.rotated.way.name}", words, folder=ROOT)


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Mapping[str, "Future[bytes]"], Path]]:
    """Play the ways of all tests that run, and receive; yield what each wrote, and the output."""
    folder = tmp_path_factory.mktemp("rotators")
    folder.chmod(0o755)
    parameters = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = [one.params["way"] for one in parameters if one and "way" in one.params]
    forks.fork_server("shipper")  # threads that begin at once would each start one
    with Processes(folder, forks.start) as processes:
        suite = Suite(folder, processes)
        suite.start_broker()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            plays = {
                way.name: threads.submit(_Play(way, suite, processes).play)
                for way in chosen
                if isinstance(way, Way) and not way.missing
            }
        receiver = suite.start_receiver((0, 1), "--once")
        assert receiver.wait(120) == 0, receiver.last_output()
        yield plays, suite.output


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_lines_that_a_real_rotator_rotates_arrive_once_and_in_order(
    played: tuple[Mapping[str, "Future[bytes]"], Path], way: Way
) -> None:
    if missing := way.missing:
        pytest.skip(f"needs {missing}")
    plays, output = played
    verdict = judge([plays[way.name].result()], read_received(output, way.name))
    assert verdict.is_perfect, str(verdict)
