"""The named points at which programs can be killed: each is in the code, and in a line's journey in docs/architecture.md."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.app.faults import VARIABLE
from tests.receiver import points as receiver_points
from tests.shipper import points as shipper_points

ROOT = Path(__file__).parents[1]
POINTS = {"receiver": receiver_points.POINTS, "shipper": shipper_points.POINTS}


@pytest.mark.parametrize("package", POINTS)
def test_every_fault_in_the_code_is_a_named_point_and_every_point_is_in_the_code(
    package: str,
) -> None:
    found = {
        name
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\bfault\(\"?([a-z_]+)\"?\)", path.read_text("utf-8"))
    }

    assert found == set(POINTS[package])


def test_every_point_stands_in_the_journey_and_none_that_is_not_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    journeys = [part.partition("\n#")[0] for part in text.split("### A line's journey")[1:]]
    rows = [line for journey in journeys for line in journey.splitlines() if line[:1] == "|"]
    cells = [row.strip("| ").split(" | ")[-1] for row in rows]
    named = [name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)]

    assert sorted(named) == sorted([*POINTS["shipper"], *POINTS["receiver"]])


def reach(folder: Path | None, *points: str) -> "subprocess.CompletedProcess[bytes]":
    words = (
        "import sys; from broker.app.faults import fault; list(map(fault, sys.argv[1:])); print(1)"
    )
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if folder:
        environment[VARIABLE] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", words, *points], env=environment, check=False, capture_output=True
    )


def test_a_point_kills_once_and_only_when_it_is_asked_to(tmp_path: Path) -> None:
    (tmp_path / "here").touch()

    calm = reach(None, "here")
    other = reach(tmp_path, "there")
    killed = reach(tmp_path, "here")
    again = reach(tmp_path, "here")

    assert [calm.returncode, other.returncode, killed.returncode, again.returncode] == [
        *(0, 0),
        *(-signal.SIGKILL, 0),
    ]


def test_a_point_is_passed_as_often_as_its_file_has_bytes(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"..")

    assert reach(tmp_path, "here", "here").returncode == 0
    assert reach(tmp_path, "here").returncode == -signal.SIGKILL
