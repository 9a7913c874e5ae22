"""Seeded rounds of kill -9 on one stage: what one round has left behind is what the next one begins with.

`LOGSHIP_ROUNDS=100` asks for more of them. And one in which every process may be hit, also the JVM and the workers, while files are rotated and compressed and
another receiver stands by.
"""

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.oracle import judge
from tests.support.processes import Process, Processes, TookTooLong, wait_until
from tests.support.received import read_received
from tests.support.stage import Stage
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(720)]

HOSTS = ["kill01", "kill02.example.net"]
ROUNDS = int(os.environ.get("LOGSHIP_ROUNDS", "1"))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_nothing_is_lost_repeated_or_reordered_when_everything_is_killed(
    stage: Stage, seed: int
) -> None:
    chance = random.Random(seed)
    files = {host: stage.host_folder(f"{host}-{seed}") / "app.log" for host in HOSTS}
    names = {host: f"{host}-{seed}" for host in HOSTS}

    with Traffic(list(files.values()), chance.choice([50, 500, 2000]), seed) as traffic:
        shippers = [stage.suite.start_shipper(names[h], [f]) for h, f in files.items()]
        time.sleep(1)
        victims = [*shippers, stage.broker, stage.receiver]
        chance.shuffle(victims)
        for victim in victims:
            _kill(victim, chance)
    verdicts = {host: stage.verdict(names[host], [traffic.written[f]]) for host, f in files.items()}

    for host, verdict in verdicts.items():
        assert verdict.is_perfect, f"seed {seed}, {names[host]}: {verdict}"
        assert verdict.written > 0
    assert [shipper.stop(10) for shipper in shippers] == [0, 0]


def _kill(victim: Process, chance: random.Random) -> None:
    time.sleep(chance.uniform(0.05, 1.0))
    assert victim.is_running(), f"{victim.name} ended by itself: {victim.last_words()}"
    victim.kill()
    time.sleep(chance.choice([0, 0, 0.5]))
    victim.start()


KILLS = 7


def test_nothing_is_lost_whichever_process_is_killed_while_another_receiver_stands_by(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("LOGSHIP_SEED", "1"))
    chance = random.Random(seed)
    with Processes(tmp_path) as processes:
        suite = Suite(tmp_path, processes, partitions=2)
        files = {host: tmp_path / "hosts" / host / "app.log" for host in HOSTS}
        for file in files.values():
            file.parent.mkdir()
        programs = [suite.start_broker(), *(_receiver(suite, name) for name in ("one", "two"))]
        wait_until(
            "a receiver owns the partitions",
            lambda: all(suite.offset(number) for number in (0, 1)),
            150,
            programs[1:],
        )
        with Traffic(list(files.values()), 500, seed) as traffic:
            programs += [suite.start_shipper(host, [file]) for host, file in files.items()]
            for _ in range(KILLS):
                _kill_any(programs, chance)
        written = {host: traffic.written[file] for host, file in files.items()}
        received = _all_received(suite, programs, written)
        for host, data in written.items():
            verdict = judge([data], received[host])
            assert verdict.is_perfect, f"seed {seed}, {host}: {verdict}"
        assert list(suite.output.glob("*.log.0*")), "nothing was rotated"


def _receiver(suite: Suite, name: str) -> Process:
    return suite.start_program(
        "logreceiver",
        f"logreceiver-{name}",
        [
            *("--partition", "all", "--server", suite.url, "--output", str(suite.output)),
            *("--state-dir", str(suite.folder / "state" / "receiver")),
            *("--standby", "--takeover-after", "2s", "--rotate-size", "20kB"),
            *("--compress", "zstd"),
        ],
    )


def _kill_any(programs: Sequence[Process], chance: random.Random) -> None:
    """Kill one process of one program; whatever ends of that is started again, as systemd does."""
    time.sleep(chance.uniform(0.2, 2.0))
    victims = chance.choice(programs).tree()
    with suppress(ProcessLookupError, IndexError):
        os.kill(chance.choice(victims), signal.SIGKILL)
    time.sleep(chance.choice([0, 0.3]))
    _start_again(programs)


def _start_again(programs: Sequence[Process]) -> None:
    for program in programs:
        if not program.is_running():
            program.start()


def _all_received(
    suite: Suite, programs: Sequence[Process], written: dict[str, bytes]
) -> dict[str, bytes]:
    """Wait until as much as was written has arrived, and return what has."""
    received: dict[str, bytes] = {}

    def are_received() -> bool:
        _start_again(programs)
        with suppress(FileNotFoundError, ValueError):  # a file is just being exchanged
            received.update({host: read_received(suite.output, host) for host in written})
        return all(len(received.get(host, b"")) >= len(written[host]) for host in written)

    with suppress(TookTooLong):  # the verdict says what is missing
        wait_until("all is received", are_received, 150)
    return received
