"""The README is true: its commands run as they stand there, in the order in which they stand there."""

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

import bench.ports
from bench.processes import Processes
from broker.app.configuration import name_of
from shipper.settings import ShipperSettings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Move the addresses of the README's commands to free ports, by the settings that it describes."""
    port = bench.ports.free_port()
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOGBROKER_LISTEN": f"127.0.0.1:{port}",
        "LOGBROKER_HTTP": f"127.0.0.1:{bench.ports.free_port()}",
        "LOGBROKER_SERVER": f"nats://127.0.0.1:{port}",
        "LOGSHIPPER_SERVER": f"nats://127.0.0.1:{port}",
        "LOGRECEIVER_SERVER": f"nats://127.0.0.1:{port}",
    }


@pytest.mark.journey
@pytest.mark.spark
def test_the_commands_by_hand_do_what_the_readme_says(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    targets, by_hand, status = blocks("sh")
    work = tmp_path / "work"
    work.mkdir()
    script = tmp_path / "by_hand.sh"
    script.write_text(f"set -e\ncd {work}\n{by_hand}{status}kill %1 %2\nwait\n", "utf-8")

    with Processes(tmp_path) as programs:
        session = programs.start("by-hand", ["bash", "-m", script], environment=environment)
        code = session.wait(270)
        said = session.log.read_text("utf-8")

    assert (code, (work / "received/web01.log").read_bytes()) == (0, b"hello, world\n"), said
    assert targets.split("\n")[:2] == ["make demo", "make test"]
    assert "Traceback" not in said


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    named = set(re.findall(r"make ([a-z-]+)[`\n]", README))

    assert {"demo", "test", "bench", "lint"} <= named
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in named)


def test_the_settings_of_the_readme_are_settings() -> None:
    (example,) = blocks("toml")

    assert set(tomllib.loads(example)) <= {name_of(field) for field in ShipperSettings.model_fields}


def test_every_file_that_the_readme_names_exists() -> None:
    named = re.findall(r"`((?:tests|bench|receiver|shipper|broker)/[\w/.]*)`", README)

    missing = [name for name in named if not (ROOT / name).exists()]

    assert (len(named) > 5, missing) == (True, [])
