"""A short seeded mix of faults, as `make chaos` throws it; only where this machine lets a process have namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.order import Order, Shape, Wanted

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(1200)]

KINDS = ("kill-shipper", "kill-server", "kill-driver", "kill-python-worker", "stop-broker")


def test_a_short_mix_of_faults_loses_repeats_and_leaks_nothing(tmp_path: Path) -> None:
    shape = Shape(seed=4, hosts=2, partitions=2)
    Order(shape, 5.0, Wanted(KINDS, len(KINDS))).write(tmp_path / "order.json")

    run = subprocess.run(
        [sys.executable, "-m", "tests.chaos.one", tmp_path],
        check=False,
        capture_output=True,
        text=True,
    )
    if run.returncode == 2:
        pytest.skip(f"not on this machine: {run.stderr.strip()}")

    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert result["findings"] == []
    assert sum(result["faults"].values()) >= len(KINDS)
    assert result["lines"]["received"] > 0
