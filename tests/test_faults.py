"""The named points at which programs can be killed are in the code and in the documentation."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nats_logship.app.faults import VARIABLE
from tests.receiver import points as receiver_points
from tests.shipper import points as shipper_points

ROOT = Path(__file__).parents[1]
POINTS = {"receiver": receiver_points.POINTS, "shipper": shipper_points.POINTS}
OTHERS = {"receiver": receiver_points.IN_TABLE, "shipper": ()}
"""Those that a package's docstring has, not the journeys of the page."""


@pytest.mark.parametrize("package", POINTS)
def test_the_faults_in_the_code_are_the_named_points(package: str) -> None:
    found = {
        name
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\bfault\(\"?([a-z_]+)\"?\)", path.read_text("utf-8"))
    }

    assert found == {*POINTS[package], *OTHERS[package]}


def test_the_points_of_the_journeys_are_the_named_points() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    journeys = [part.partition("\n#")[0] for part in text.split("### A line's journey")[1:]]
    rows = [line for journey in journeys for line in journey.splitlines() if line[:1] == "|"]
    cells = [row.strip("| ").split(" | ")[-1] for row in rows]
    named = [name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)]

    assert sorted(named) == sorted([*POINTS["shipper"], *POINTS["receiver"]])


def test_the_points_of_the_table_are_in_the_description_of_its_steps() -> None:
    text = (ROOT / "receiver/table/__init__.py").read_text("utf-8")

    assert re.findall(r"`(table_[a-z]+)`", text) == list(receiver_points.IN_TABLE)


def reach(folder: Path, point: str) -> int:
    arguments = "import sys; from nats_logship.app.faults import fault; fault(sys.argv[1])"
    environment = os.environ | {VARIABLE: str(folder)}
    return subprocess.run([sys.executable, "-c", arguments, point], env=environment).returncode


def test_a_point_kills_once_after_as_many_passes_as_its_file_has_bytes(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b".")

    codes = [reach(tmp_path, point) for point in ("there", "here", "here", "here")]

    assert codes == [0, 0, -signal.SIGKILL, 0]
