"""From an inventory to lines, an upgrade under load, a host cut off, a clean end.

On booted machines, over SSH: `make rollout-test`, as root, with the wheels of `make wheelhouse`.
"""

import re
import shlex
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rollout.field import LOGS, MARKS, ROOT, WHEELHOUSE, Field, laid_out, received
from tests.support.oracle import Verdict, judge_host
from tests.support.processes import wait_until
from tests.support.traffic import Traffic
from tests.systemd.machine import Machine

pytestmark = MARKS
NEWER = "0.1.1.dev1"
SEED = r"\bS[UACO][A-Z2-7]{56}\b"  # of an nkey
PROGRAM_OF = {"broker": "logbroker", "logs": "logreceiver", "web": "logshipper"}
PROGRAMS = tuple(PROGRAM_OF.values())


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Return a wheelhouse with a newer build of ourselves."""
    source, folder = tmp_path / "source", tmp_path / "newer"
    source.mkdir()
    command = ["git", "-C", ROOT, "archive", "HEAD"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    project = source / "pyproject.toml"
    text = re.sub(r'(?m)^version = ".*"', f'version = "{NEWER}"', project.read_text("utf-8"))
    project.write_text(text, "utf-8")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, source]
    subprocess.run(build, check=True)
    folder.mkdir()
    wheel = next(tmp_path.glob("nats_logship-*.whl"))
    for archive in Path(WHEELHOUSE).glob("*.tar"):
        with tarfile.open(archive) as theirs, tarfile.open(folder / archive.name, "w") as ours:
            for other in theirs:
                if other.isfile() and not Path(other.name).name.startswith("nats_logship-"):
                    ours.addfile(other, theirs.extractfile(other))
            ours.add(wheel, wheel.name)
    return folder


def footprints(machine: Machine) -> set[str]:
    """Return our paths and users on a machine, but those that journald and Ansible remember."""
    names = " -o ".join(f"-name '*{program}*'" for program in (*PROGRAMS, "logship"))
    files = machine.output_of(f"find /etc /opt /run /srv /usr /var -xdev {names}").splitlines()
    users = machine.run(f"getent passwd {' '.join(PROGRAMS)}; getent group {' '.join(PROGRAMS)}")
    return {path for path in files if "/journal/" not in path} | set(users.stdout.splitlines())


@dataclass(frozen=True)
class Site:
    """A field with its hosts, the machine that receives, and how they are judged."""

    field: Field
    hosts: tuple[str, ...] = ("web01", "web02")

    def logs(self, host: str) -> list[Path]:
        return [self.field.machines[host].disk / path for path in LOGS]

    @property
    def applications(self) -> list[Path]:
        return [self.logs(host)[-1] for host in self.hosts]

    def verdict(self, host: str) -> Verdict:
        received = self.field.machines["logs"].disk / "var/log/logship"
        return judge_host(self.logs(host), received, host)

    def is_received(self, *hosts: str) -> None:
        for host in hosts:
            received(lambda host=host: self.verdict(host))


@pytest.mark.parametrize("brokers", [1, 3], ids=["alone", "cluster"])
def test_a_site_is_rolled_out_upgraded_and_removed_with_each_line_once(
    tmp_path: Path, newer: Path, brokers: int
) -> None:
    of_brokers = [f"broker{number}" for number in range(1, brokers + 1)]
    with laid_out(tmp_path / "field", [*of_brokers, "logs", *Site.hosts]) as field:
        site = Site(field)
        machines = field.machines.values()
        groups = {
            "logship_brokers": of_brokers,
            "logship_receivers": ["logs"],
            "logship_shippers": site.hosts,
        }
        variables = {
            "logship_install_wheelhouse": WHEELHOUSE,
            "logship_broker_settings": {"partitions": 2},
            "logship_broker_backups": True,
            "logship_broker_console": True,
            "logship_shipper_settings": {"file": [f"/{path}" for path in LOGS]},
        }
        field.inventory(groups, variables)
        before = [footprints(machine) for machine in machines]

        _rolls_out_once(field)
        _serves_besides(field)
        with Traffic(site.applications, 100):
            field.inventory(groups, variables | {"logship_install_wheelhouse": str(newer)})
            _upgrades(field)
            _lose_power(field)
        site.is_received(*site.hosts)
        _keeps_secrets(field)
        _cuts_off(site, "web02")
        _removes(field, before)


def _rolls_out_once(field: Field) -> None:
    first = field.play("site.yml")
    second = field.play("site.yml", "--diff")
    seen = field.play("site.yml", "--check", "--diff")

    assert all(first.values()), first
    assert not any(second.values()), second
    assert not any(seen.values()), seen
    assert not any(field.play("status.yml").values())


def _serves_besides(field: Field) -> None:
    """Show that the console answers, and that the backup of a day can be made and read."""
    broker = field.machines["broker1"]
    page = "exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"
    answers = lambda: " 200 " in broker.run(f"bash -c {shlex.quote(page)}").stdout  # noqa: E731
    wait_until("the console answers", answers, 60)
    assert broker.output_of("systemctl is-active logbroker-backup.timer") == "active"
    broker.output_of("systemctl start logbroker-backup.service", 100)
    broker.output_of("logbroker backup --verify /var/lib/logbroker-backups", 100)


def _upgrades(field: Field) -> None:
    field.play("upgrade.yml")

    for name, machine in field.machines.items():
        program = next(program for kind, program in PROGRAM_OF.items() if name.startswith(kind))
        assert NEWER in machine.output_of(f"{program} --version")


def _lose_power(field: Field) -> None:
    """Power off a host and the receiver in order, cut a broker's power; all come back."""
    for name in ("web01", "logs"):
        field.machines[name].power_off()
    field.machines["broker1"].cut_power()
    field.wait()


def _keeps_secrets(field: Field) -> None:
    """Neither the output nor the machines' logs of it, task arguments included, show a secret."""
    logged = [machine.disk / "var/log/text.log" for machine in field.machines.values()]
    assert "Invoked with" in logged[0].read_text("utf-8")
    made = (field.folder / "inventory/logship-secrets").glob("cluster-secret")
    secrets = [SEED, *(re.escape(file.read_text("utf-8").strip()) for file in made)]
    for text in (file.read_text("utf-8") for file in (field.log, *logged)):
        assert not re.search("|".join(secrets), text)
    for machine in field.machines.values():
        assert not machine.output_of("find /etc/credstore -perm /077")
        assert machine.output_of("find /etc/credstore -type f")


def _cuts_off(site: Site, host: str) -> None:
    site.field.play("revoke.yml", "--extra-vars", f"logship_revoke={host}")
    with Traffic(site.applications, 100, seed=2) as traffic:
        is_enough = lambda: all(one.count(b"\n") > 500 for one in traffic.written.values())  # noqa: E731
        wait_until("all have written", is_enough, 60)

    site.is_received(*(other for other in site.hosts if other != host))
    verdict = site.verdict(host)
    assert verdict.missing >= 100, verdict
    assert not verdict.repeated + verdict.reordered + verdict.torn + verdict.foreign


def _removes(field: Field, before: list[set[str]]) -> None:
    field.play("uninstall.yml")
    assert field.machines["broker1"].does("test -d /var/lib/logbroker/jetstream")
    assert field.machines["logs"].does("test -s /var/log/logship/web01.log")
    assert field.machines["web01"].does("test -d /var/lib/logshipper")

    field.play("uninstall.yml", "--extra-vars", "logship_remove_data=true")
    assert [footprints(machine) for machine in field.machines.values()] == before
    for machine in field.machines.values():
        assert not machine.output_of("systemctl list-units --failed --no-legend --plain 'log*'")
        assert not machine.run(f"pgrep -x '{'|'.join((*PROGRAMS, 'nats-server'))}'").stdout
