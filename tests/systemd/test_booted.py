"""The units on a machine booted with real systemd, through kills, reloads and stops."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.oracle import judge_host
from tests.support.processes import wait_until
from tests.support.received import read_received
from tests.support.traffic import Traffic
from tests.systemd.machine import Machine, booted, reason_not_to_boot

pytestmark = [
    pytest.mark.booted,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(reason_not_to_boot()), reason=reason_not_to_boot()),
]

RECEIVER = "logreceiver@all"
UNITS = ("logbroker", "logshipper", RECEIVER)
STORE = "--store-dir /var/lib/logbroker"


def start(machine: Machine, *units: str) -> None:
    machine.output_of(f"systemctl start {' '.join(units)}", 100)


def admit(machine: Machine) -> None:
    """Give the shipper and the receiver their credentials."""
    for kind, unit in (("host web01", "logshipper"), ("receiver all", "logreceiver")):
        output = f"--yes --output /etc/credstore/{unit}.toml"
        machine.output_of(f"logbroker credentials add {kind} {STORE} {output}")


def is_up(machine: Machine, unit: str, restarts: int = 0) -> Callable[[], bool]:
    def is_receiving() -> bool:
        shown = machine.output_of(f"systemctl show -p ActiveState -p NRestarts {unit}")
        return shown.split() == [f"NRestarts={restarts}", "ActiveState=active"]

    return is_receiving


def has_begun(machine: Machine, times: int) -> Callable[[], bool]:
    """Return whether it has begun to receive so many times; a slow start counts as one before."""
    return lambda: machine.journal(RECEIVER).count("receiving partition") == times


def has_grown(file: Path) -> Callable[[], bool]:
    """Return a function: has a file grown since? A receiver that began may have no line yet."""
    size = lambda: file.stat().st_size if file.exists() else 0  # noqa: E731
    before = size()
    return lambda: size() > before


def test_lines_flow_through_kills_reloads_and_stops_once_and_in_order(tmp_path: Path) -> None:
    with booted(tmp_path) as machine:
        machine.write("/etc/logship/logbroker.toml", "partitions = 2\n")
        machine.write("/etc/logship/logshipper.toml", 'file = ["/var/log/app.log"]\n')
        log, received = (machine.root / "var/log" / name for name in ("app.log", "logship"))
        machine.output_of("install -m 640 -g adm /dev/null /var/log/app.log")
        start(machine, "logbroker")
        admit(machine)

        machine.output_of(f"systemctl enable {RECEIVER}")
        with Traffic([log], 200):
            start(machine, "logshipper", "logreceiver.target")
            wait_until("the target has its receivers", is_up(machine, RECEIVER), 150)
            wait_until("it receives", has_begun(machine, 1), 150)
            for units in (UNITS[:1], UNITS[1:]):
                machine.output_of(f"systemctl kill -s KILL {' '.join(units)}")
                for unit in units:
                    wait_until(f"{unit} is back", is_up(machine, unit, 1), 150, [machine.process])
            wait_until("it receives again", has_begun(machine, 2), 150)
            wait_until("lines come again", has_grown(received / "web01.log"), 150)
            changed = 'file = ["/var/log/app.log"]\ncompression = "none"\n'
            machine.write("/etc/logship/logshipper.toml", changed)
            machine.write("/etc/logship/logreceiver.toml", 'keep = 5\ncompress = "zstd"\n')
            machine.output_of(f"systemctl reload {' '.join(UNITS)}")
            for unit in UNITS:
                wait_until(f"{unit} goes on", is_up(machine, unit, 1), 150)
                arguments = "settings reloaded"
                wait_until(arguments, lambda: arguments in machine.journal(unit), 150)  # noqa: B023
            machine.output_of(f"systemctl kill -s USR1 {RECEIVER}")
        closed = lambda: [path.name for path in received.glob("web01.log.*")]  # noqa: E731
        wait_until("a file is compressed", lambda: closed() == ["web01.log.000001.zst"], 120)
        has_all = lambda: len(read_received(received, "web01")) >= log.stat().st_size  # noqa: E731
        wait_until("everything is received", has_all, 150)
        machine.output_of("systemctl stop logreceiver.target")
        ended = lambda: machine.show(RECEIVER, "ActiveState") == "inactive"  # noqa: E731
        wait_until("its receivers end with it", ended, 30)
        machine.output_of("systemctl stop logshipper logbroker")

        for unit in UNITS:
            assert machine.show(unit, "Result") == "success", machine.journal(unit)
        verdict = judge_host([log], received, "web01")
        assert verdict.is_perfect, f"{verdict}\n{machine.journal()}"
        assert verdict.written > 1000
        owners = machine.output_of("stat -c '%U %a' /var/lib/logbroker /var/log/logship")
        assert owners.split("\n") == ["logbroker 700", "logreceiver 750"]
        assert "Traceback" not in machine.journal()
        assert "Exception" not in machine.journal("logreceiver*")  # of Java
        assert "denied" not in machine.journal().lower()


@pytest.mark.long
def test_the_journal_of_the_machine_arrives_once_through_kills_and_rotations(
    tmp_path: Path,
) -> None:
    orders = (
        *("systemctl kill -s KILL logshipper", "journalctl --rotate"),
        *("systemctl kill -s TERM logshipper", "systemctl restart logshipper", "true"),
    )
    with booted(tmp_path) as machine:
        machine.write("/etc/logship/logshipper.toml", "file = []\njournal = true\n")
        start(machine, "logbroker")
        admit(machine)
        start(machine, "logshipper", RECEIVER)
        wait_until("it receives", has_begun(machine, 1), 60)
        received = machine.root / "var/log/logship/web01.log"
        for number, order in enumerate(orders):
            marks = f"seq -f 'mark {number} %g' 200"
            machine.output_of(f"{marks} | systemd-cat -t marks; {order}")
            end = b"mark %d 200\n" % number
            has_all = lambda end=end: received.exists() and end in received.read_bytes()  # noqa: E731
            wait_until("all marks are received", has_all, 60, [machine.process])
        machine.output_of("systemctl stop logshipper logreceiver.target")

        lines = received.read_bytes()
        shown = machine.run("journalctl --all --quiet --no-pager -o short-iso-precise").stdout
        assert shown.encode().startswith(lines)
        assert lines.count(b": mark ") == 200 * len(orders)
        assert not list(received.parent.glob(".gaps.*"))
        assert "Traceback" not in machine.journal()
        assert "denied" not in machine.journal().lower()


@pytest.mark.long
def test_a_receiver_whose_disk_is_not_mounted_stops_and_fills_no_other(tmp_path: Path) -> None:
    drop_in = Path(__file__).parents[2] / "systemd/drop-ins/output-on-a-mount.conf"
    with booted(tmp_path) as machine:
        folder = "etc/systemd/system/logreceiver@.service.d"
        machine.output_of(f"mkdir -p /{folder} /srv/logs && chown logreceiver /srv/logs")
        shutil.copy(drop_in, machine.root / folder / "output.conf")
        machine.output_of("systemctl daemon-reload")
        start(machine, "logbroker")

        assert not machine.does(f"systemctl start {RECEIVER}")
        assert machine.output_of("ls -A /srv/logs; ls /var/log | grep logship || true") == ""

        mount = "[Mount]\nWhat=disk\nWhere=/srv/logs\nType=tmpfs\nOptions=mode=777\n"
        machine.write("/etc/systemd/system/srv-logs.mount", mount)
        machine.output_of("systemctl daemon-reload")
        machine.write("/etc/logship/logreceiver@left.env", "LOGRECEIVER_PARTITION=0,1,2\n")
        start(machine, "logreceiver@left")
        assert machine.output_of("ls -A /srv/logs")
        arguments = "receiving partitions 0 to 2 into /srv/logs"
        wait_until("takes its share", lambda: arguments in machine.journal("logreceiver@left"), 60)
        machine.output_of("systemctl stop srv-logs.mount")

        assert machine.show("logreceiver@left", "ActiveState") == "inactive"
        assert machine.show("logreceiver@left", "ExecMainStatus") == "0"
        assert machine.output_of("ls -A /srv/logs") == ""


@pytest.mark.long
def test_a_program_that_hangs_is_started_again_by_its_watchdog(tmp_path: Path) -> None:
    with booted(tmp_path) as machine:
        soon = "[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n"
        machine.write("/etc/systemd/system/logbroker.service.d/soon.conf", soon)
        machine.output_of("systemctl daemon-reload")
        start(machine, "logbroker")

        machine.output_of(f"kill -STOP {shlex.quote(machine.show('logbroker', 'MainPID'))}")

        wait_until("is back", is_up(machine, "logbroker", 1), 40, [machine.process])
        assert "watchdog" in machine.journal("logbroker").lower()


@pytest.mark.long
def test_timers_keep_backups_and_the_certificate_and_the_console_only_reads(tmp_path: Path) -> None:
    with booted(tmp_path) as machine:
        machine.output_of("systemctl enable --now logbroker-backup.timer logbroker-tls-renew.timer")
        start(machine, "logbroker-tls-renew")  # there is no authority yet: nothing to do
        as_broker = "runuser -u logbroker -- /opt/logship/bin/logbroker"
        machine.output_of("install -d -o logbroker -m 700 /var/lib/logbroker")
        machine.output_of(f"{as_broker} tls init {STORE} --name 127.0.0.1")
        start(machine, "logbroker")
        for kind, unit in (("admin backup", "backup"), ("monitor console", "console")):
            output = f"--yes --output /etc/credstore/logbroker-{unit}.toml"
            machine.output_of(f"logbroker credentials add {kind} {STORE} {output}")
        for unit in ("backup", "tls-renew"):
            assert machine.show(f"logbroker-{unit}.timer", "ActiveState") == "active"
            start(machine, f"logbroker-{unit}")
            assert machine.show(f"logbroker-{unit}", "Result") == "success"
        start(machine, "logbroker-console")

        page = (
            "exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"
        )
        answers = lambda: " 200 " in machine.run(f"bash -c {shlex.quote(page)}").stdout  # noqa: E731
        wait_until("the console answers", answers, 30, [machine.process])
        assert len(machine.output_of("ls /var/lib/logbroker-backups").split()) == 1
        verify = f"{as_broker} backup --verify /var/lib/logbroker-backups"
        machine.output_of(verify)
