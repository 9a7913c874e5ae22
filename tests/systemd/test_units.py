"""The units as systemd itself judges them, and what they promise beyond its judgement."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nats_logship.app.exits import Exit
from tests.docs.commands import blocks
from tests.shipper.conftest import read_lines

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
PROGRAMS = (
    *("logbroker.service", "logshipper.service", "logreceiver@.service"),
    *("logreceiver-table.service", "logbroker-console.service"),
)
SERVICES = (*PROGRAMS, "logbroker-backup.service", "logbroker-tls-renew.service")

analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def install(folder: Path) -> None:
    arguments = ["make", "-C", ROOT, "install-units", f"DESTDIR={folder}"]
    subprocess.run(arguments, check=True, capture_output=True)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the units for the programs of this checkout; return their folder."""
    install(tmp_path)
    folder = tmp_path / "etc/systemd/system"
    for unit in folder.glob("*.service"):
        text = unit.read_text("utf-8")
        unit.write_text(text.replace("/opt/logship/bin", str(Path(sys.executable).parent)), "utf-8")
    return folder


def judged(arguments: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, cwd=folder, check=False
    )


def piping_unit() -> str:
    """Return the unit of the page that ships standard input, for the programs of this checkout."""
    (unit,) = blocks((ROOT / "docs/shipper.md").read_text("utf-8"), "ini")
    return unit.replace("/opt/logship/bin", str(Path(sys.executable).parent))


@pytest.mark.nats
@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("exit 0", 0)])
def test_the_unit_of_standard_input_ends_as_its_writer_and_is_restarted(
    logs_url: str, tmp_path: Path, end: str, code: int
) -> None:
    program = tmp_path / "run"
    program.write_text(f"#!/bin/sh\necho one\n{end}\n", "utf-8")
    program.chmod(0o755)
    unit = piping_unit().replace("/opt/app/run", str(program))
    found = re.search(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    assert found
    own = {"STATE_DIRECTORY": str(tmp_path), "LOGSHIPPER_SERVER": logs_url}
    environment = os.environ | own
    done = subprocess.run(shlex.split(found[1]), env=environment, timeout=60, check=False)

    assert done.returncode == code
    assert read_lines(logs_url) == b"one\n"
    assert "\nRestart=always\n" in piping_unit()


@analyze
def test_systemd_finds_nothing_wrong_in_units_and_their_drop_ins(installed: Path) -> None:
    (installed / "logshipper-journal.service").write_text(piping_unit(), "utf-8")
    units = sorted(f"./{path.name}" for path in installed.iterdir())
    for drop_in in (UNITS / "drop-ins").iterdir():
        text = drop_in.read_text("utf-8")
        found = re.search(r"/etc/systemd/system/(\S+\.d/\S+\.conf)", text)
        assert found, "where it belongs"
        (installed / found[1]).parent.mkdir(exist_ok=True)
        (installed / found[1]).write_text(text, "utf-8")

    done = judged(["verify", "--man=no", *units], installed)

    assert len(units) == len(SERVICES) + 4  # a target, two timers and the page's unit
    assert not [line for line in done.stderr.splitlines() if ".mount" not in line], done


@analyze
@pytest.mark.parametrize("service", SERVICES)
def test_none_is_exposed_more_than_two_of_ten(installed: Path, service: str) -> None:
    arguments = ["security", "--offline=true", "--no-pager", "--threshold=20", f"./{service}"]

    done = judged(arguments, installed)

    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze judges no files")
    assert done.returncode == 0, done.stdout[-200:]


@pytest.mark.parametrize("service", PROGRAMS)
def test_a_unit_restarts_its_program_unless_an_operator_must_act(service: str) -> None:
    arguments = (UNITS / service).read_text("utf-8").splitlines()

    codes = f"RestartPreventExitStatus={Exit.USAGE.value} {Exit.CONFIGURATION.value}"
    assert {"StartLimitIntervalSec=0", "Restart=always", codes} <= set(arguments)


def test_samples_name_secrets_that_their_unit_hands_over_and_drop_ins_that_exist() -> None:
    named = []
    for sample in (UNITS / "settings").iterdir():
        text = sample.read_text("utf-8")
        named += [(sample.stem, one) for one in re.findall(r'_(?:file|cert|key) = "(.*)"', text)]
        assert all((UNITS / one).is_file() for one in re.findall(r"drop-ins/\S+\.conf", text))

    assert len(named) >= 4
    for program, path in named:
        unit = (UNITS / f"{program}.service").read_text("utf-8")
        assert path.startswith(f"/run/credentials/{program}.service/")
        assert f"LoadCredential={Path(path).name}" in unit.splitlines()


def test_a_certificate_is_renewed_in_the_store_that_the_broker_has() -> None:
    unit, renewal = (
        (UNITS / f"logbroker{name}.service").read_text("utf-8").splitlines()
        for name in ("", "-tls-renew")
    )

    given = {line for line in unit if line.startswith(("Environment", "StateDirectory="))}
    assert len(given) == 3
    assert given <= set(renewal)


def test_settings_that_exist_are_kept_when_units_are_installed_again(tmp_path: Path) -> None:
    install(tmp_path)
    own = tmp_path / "etc/logship/logshipper.toml"
    own.write_text("mine", "utf-8")
    (tmp_path / "etc/logship/logbroker.toml").unlink()

    install(tmp_path)

    assert own.read_text("utf-8") == "mine"
    assert (tmp_path / "etc/logship/logbroker.toml").exists()
