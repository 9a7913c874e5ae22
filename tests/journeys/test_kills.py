"""Ten seeded rounds of kill -9 on one stage: what one round has left behind is what the next one begins with."""

import random
import time

import pytest

from bench.processes import Process
from bench.stage import Stage
from bench.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(180)]

HOSTS = ["kill01", "kill02.example.net"]
ROUNDS = 10


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
