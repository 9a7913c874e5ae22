"""Received files on a disk of their own: without it the receiver stops, and goes on by itself when it is back."""

from pathlib import Path

from tests.rollout.field import LOGS, MARKS, WHEELHOUSE, Field, laid_out, played, received
from tests.support.oracle import Verdict, judge_host
from tests.support.processes import wait_until
from tests.support.traffic import Traffic
from tests.systemd.machine import Machine

pytestmark = MARKS
UNIT = "logreceiver@all"
# as of a new file system: root's, and not empty
DISK = "install -d -m 755 /srv/disk /srv/logs && install -d -m 700 /srv/disk/lost+found"
TABLE = "/srv/disk /srv/logs none bind,nofail 0 0\n"


def test_a_receiver_without_its_disk_stops_and_fills_no_other_and_goes_on_when_it_is_mounted(
    tmp_path: Path,
) -> None:
    with laid_out(tmp_path / "field", ["logs", "web01"]) as field:
        logs, web01 = field.machines.values()
        groups = {
            "logship_brokers": ["logs"],
            "logship_receivers": ["logs"],
            "logship_shippers": ["web01"],
        }
        variables = {
            "logship_install_wheelhouse": WHEELHOUSE,
            "logship_receiver_settings": {"output": "/srv/logs"},
            "logship_receiver_output_is_mount": True,
            "logship_shipper_settings": {"file": [f"/{path}" for path in LOGS]},
        }
        field.inventory(groups, variables)
        logs.told(DISK)

        _refuses_a_disk_that_is_not_there(field, logs)
        logs.write("/etc/fstab", TABLE)
        logs.told("systemctl daemon-reload && mount /srv/logs")
        played(field, "site.yml")
        assert not any(played(field, "site.yml", "--diff", "--limit", "logs").values())

        with Traffic([web01.disk / "var/log/app.log"], 100):
            wait_until("lines flow", lambda: has_files(logs), 60)
            logs.told("umount --lazy /srv/logs")
            _is_stopped(logs)
            logs.told("mount /srv/logs")
            wait_until("goes on", lambda: is_active(logs), 60)

            logs.told("systemctl stop srv-logs.mount")
            _is_stopped(logs)
            logs.told("mv /srv/disk /srv/away && touch /srv/disk")  # one that cannot be mounted
            logs.power_off()
            field.wait()
            wait_until("has tried", lambda: logs.show("srv-logs.mount", "Result") != "success", 60)
            _is_stopped(logs)
            logs.told("rm /srv/disk && mv /srv/away /srv/disk && systemctl start srv-logs.mount")
            wait_until("goes on again", lambda: is_active(logs), 60)
        received(lambda: verdict(web01, logs))

        _forgets_the_mount(field, groups, variables)


def _refuses_a_disk_that_is_not_there(field: Field, logs: Machine) -> None:
    play = field.play("site.yml", "--limit", "logs")

    assert play.code != 0
    assert "nothing is mounted at /srv/logs" in play.said
    assert not is_active(logs)
    assert not logs.told("ls -A /srv/logs")


def _is_stopped(logs: Machine) -> None:
    """See that it ends in order, stays so while lines come, and writes nothing onto the disk below."""
    wait_until("stops", lambda: logs.show(UNIT, "ActiveState") == "inactive", 60)
    assert not logs.does(f"sleep 5; systemctl is-active {UNIT}")
    assert logs.show(UNIT, "ExecMainStatus") == "0"
    assert not logs.told("ls -A /srv/logs")


def _forgets_the_mount(
    field: Field, groups: dict[str, list[str]], variables: dict[str, object]
) -> None:
    logs = field.machines["logs"]
    links = "find /etc/systemd/system -path '*.mount.wants/*' -name 'logreceiver*'"
    assert logs.told(links)
    field.inventory(groups, variables | {"logship_receiver_output_is_mount": False})

    played(field, "site.yml", "--limit", "logs")

    assert not logs.told(links)
    assert is_active(logs)


def is_active(machine: Machine) -> bool:
    return machine.does(f"systemctl is-active {UNIT}")


def has_files(logs: Machine) -> bool:
    return logs.does("test -s /srv/logs/web01.log")


def verdict(web01: Machine, logs: Machine) -> Verdict:
    return judge_host([web01.disk / path for path in LOGS], logs.disk / "srv/disk", "web01")
