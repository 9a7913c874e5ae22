"""The units as systemd itself judges them, and what they promise beyond its judgement."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.app.exits import Exit

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
SERVICES = ("logbroker.service", "logshipper.service", "logreceiver@.service")

analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def values(unit: str, section: str, key: str) -> list[str]:
    text = (UNITS / unit).read_text("utf-8").partition(f"[{section}]")[2]
    return re.findall(rf"^{key}=(.*)$", text.split("\n[")[0], re.MULTILINE)


def value(unit: str, key: str) -> str:
    (found,) = values(unit, "Service", key)
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the units for the programs of this checkout; return their folder."""
    subprocess.run(
        ["make", "-C", ROOT, "install-units", f"DESTDIR={tmp_path}"],
        check=True,
        capture_output=True,
    )
    folder = tmp_path / "etc/systemd/system"
    for unit in folder.glob("*.service"):
        text = unit.read_text("utf-8")
        unit.write_text(text.replace("/opt/logship/bin", str(Path(sys.executable).parent)), "utf-8")
    return folder


def judged(words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, cwd=folder, check=False
    )


@analyze
def test_systemd_has_nothing_to_say_against_any_of_them(installed: Path) -> None:
    units = sorted(f"./{path.name}" for path in installed.iterdir())

    done = judged(["verify", "--man=no", *units], installed)

    assert len(units) == 4
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@analyze
@pytest.mark.parametrize("drop_in", sorted(path.name for path in (UNITS / "drop-ins").iterdir()))
def test_systemd_has_nothing_to_say_against_a_drop_in_where_it_says_it_belongs(
    installed: Path, drop_in: str
) -> None:
    text = (UNITS / "drop-ins" / drop_in).read_text("utf-8")
    found = re.search(r"/etc/systemd/system/((\S+)\.d/\S+\.conf)", text)
    assert found
    (installed / found[1]).parent.mkdir()
    (installed / found[1]).write_text(text, "utf-8")

    done = judged(["verify", "--man=no", f"./{found[2]}"], installed)

    assert not [line for line in done.stderr.splitlines() if ".mount" not in line]


@analyze
@pytest.mark.parametrize("service", SERVICES)
def test_none_is_exposed_more_than_two_of_ten(installed: Path, service: str) -> None:
    words = ["security", "--offline=true", "--no-pager", "--threshold=20", f"./{service}"]

    done = judged(words, installed)

    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze judges no files")
    assert done.returncode == 0, done.stdout[-200:]


@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_gives_its_program_a_user_time_to_end_and_a_start_unless_a_person_must_mend(
    service: str,
) -> None:
    users = (UNITS / "sysusers.d/logship.conf").read_text("utf-8")
    codes = [str(Exit.USAGE.value), str(Exit.CONFIGURATION.value)]

    assert value(service, "Restart") == "always"
    assert value(service, "RestartPreventExitStatus").split() == codes
    assert values(service, "Unit", "StartLimitIntervalSec") == ["0"]
    assert value(service, "Type") == "notify"
    assert value(service, "ExecReload") == "/bin/kill -HUP $MAINPID"
    assert value(service, "KillMode") == "mixed"  # their children are theirs to end
    assert int(value(service, "TimeoutStopSec").removesuffix("s")) > 10
    assert value(service, "User") == service.removesuffix(".service").removesuffix("@")
    assert re.search(rf"^u {value(service, 'User')} ", users, re.MULTILINE)


def test_settings_that_are_there_stay_when_units_are_installed_again(tmp_path: Path) -> None:
    command = ["make", "-C", str(ROOT), "install-units", f"DESTDIR={tmp_path}"]
    subprocess.run(command, check=True, capture_output=True)
    own = tmp_path / "etc/logship/logshipper.toml"
    own.write_text("mine", "utf-8")
    (tmp_path / "etc/logship/logbroker.toml").unlink()

    subprocess.run(command, check=True, capture_output=True)

    assert own.read_text("utf-8") == "mine"
    assert (tmp_path / "etc/logship/logbroker.toml").exists()
