"""Measure how fast the entries of a systemd journal are shipped, and what that costs.

The journal is read by `journalctl` alone first, as the export format into /dev/null: its user and
system time is the measure of the agent's, which has `journalctl` as a child.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bench.text_table import table
from tests.conftest import apply_topology
from tests.support.journals import JournalWriter
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.suite import start_nats_server

_FIELDS = {
    "PRIORITY": "6",
    "_TRANSPORT": "stdout",
    "_UID": "0",
    "_GID": "0",
    "_COMM": "app",
    "_EXE": "/usr/bin/app",
    "_CMDLINE": "/usr/bin/app --serve",
    "_CAP_EFFECTIVE": "1ffffffffff",
    "_SYSTEMD_CGROUP": "/system.slice/app.service",
    "_SYSTEMD_UNIT": "app.service",
    "_SYSTEMD_SLICE": "system.slice",
    "_MACHINE_ID": "11111111111111111111111111111111",
    "SYSLOG_FACILITY": "3",
}
_AT_ONCE = 20_000  # entries


def _measure(command: Sequence[str]) -> tuple[float, float]:
    """Return the seconds that a program takes, and its CPU seconds with those of its children."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{command[0]} ended with {process.returncode}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime


@click.command()
@click.option("--entries", default=200_000, show_default=True)
@click.option("--runs", default=3, show_default=True)
@click.option("--option", "options", multiple=True, help="Of logshipper, such as --unit=app.")
def main(entries: int, runs: int, options: tuple[str, ...]) -> None:
    """Measure the shipping of a journal with `--once`, start of the agent included."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="logship-bench-") as name:
        folder = Path(name)
        (journal := folder / "journal").mkdir()
        writer = JournalWriter(journal)
        for _ in range(0, entries, _AT_ONCE):
            writer.write(_AT_ONCE, **_FIELDS)
        for _ in range(runs):
            rows += [_run(folder, writer, options)]
    heads = ("entries/s", "CPU s", "journalctl CPU s", "ratio")
    click.echo(table(heads, rows))


def _run(folder: Path, writer: JournalWriter, options: Sequence[str]) -> tuple[str, ...]:
    directory = writer.path.parent
    _, least = _measure(["journalctl", "--output=export", f"--directory={directory}"])
    place = Path(tempfile.mkdtemp(dir=folder))
    with Processes(place) as processes:
        port, settings = free_port(), place / "nats.conf"
        settings.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{place}" }}\n')
        url = f"nats://127.0.0.1:{port}"
        start_nats_server(processes, "nats-server", settings)
        apply_topology(url)
        agent = [sys.executable, "-m", "shipper", "--server", url, "--host", "web01", "--once"]
        journal = ["--journal", "--journal-directory", str(directory)]
        seconds, used = _measure([*agent, *journal, *options])
    rate = writer.written / seconds
    return f"{rate:,.0f}", f"{used:.2f}", f"{least:.2f}", f"{used / least:.2f}"


if __name__ == "__main__":
    main()
