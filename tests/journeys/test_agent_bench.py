"""The measurement of an agent alone is itself checked: it runs, it counts, it judges."""

import json
import sys
from pathlib import Path

from bench.processes import Processes


def test_an_agent_alone_is_measured_and_checked(processes: Processes, tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    bench = processes.start(
        "agent",
        [
            *(sys.executable, "-m", "bench.agent", "--size", "20", "--mode", "auto"),
            *("--runs", "1", "--json", report),
        ],
    )
    code = bench.wait(360)

    assert code == 0, bench.last_words()
    (run,) = json.loads(report.read_text())
    assert "100000 written, 100000 received" in run["verdict"]
    assert 0 < run["stored"] < run["size"]
    assert min(run["agent_cpu"], run["broker_cpu"], run["peak"]) > 0
