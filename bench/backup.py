"""How fast a backup is taken and brought back, against `cp -r` of the store; run after run in turn, on one disk.

The store was written a moment before and stands in the page cache, for all alike. `cp` ends when the last byte is in the
page cache, a backup when it is on disk: so `cp` is also timed with a sync behind it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import click

from bench.fill import Sent, fill
from bench.ports import free_port
from bench.processes import Processes, wait_until
from bench.suite import Suite
from bench.table import table
from broker.wire.message import Origin, Section, Span, encode_origin

__all__: list[str] = []

_BLOCK = 64 * 1024
_HOSTS = 50
_MIB = 1024 * 1024


def _messages(size: int) -> Iterator[Sent]:
    """Yield messages as shippers send them when there is much: compressed, so bytes that nobody can compress again."""
    for number in range(size // _BLOCK):
        start = number // _HOSTS * _BLOCK
        span = Span("1-1", start, start + _BLOCK)
        section = Section("/var/log/app.log", span, _BLOCK, 300)
        origin = Origin("1-00000001", 1_790_000_000_000_000_000, (section,))
        headers = "".join(f"{name}: {value}\r\n" for name, value in encode_origin(origin).items())
        yield Sent(f"host{number % _HOSTS:04}", b"", headers.encode(), os.urandom(_BLOCK))


def _timed(copy: Callable[[Path, Path], None], store: Path, target: Path) -> float:
    began = time.perf_counter()
    copy(store, target)
    return time.perf_counter() - began


def _copy(store: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", store, target], check=True)


def _copy_and_sync(store: Path, target: Path) -> None:
    _copy(store, target)
    subprocess.run(["sync", "-f", target], check=True)


def _peak(command: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds and the most memory that it had, in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{command} ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


@click.command()
@click.option("--size", default=1024, show_default=True, help="MiB in the stream.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where to work; default: /tmp.")
def main(size: int, rounds: int, folder: Path | None) -> None:
    """Fill a broker, then copy its store and back it up in turn, and restore the last backup to another one."""
    with tempfile.TemporaryDirectory(dir=folder) as name, Processes(Path(name)) as programs:
        here = Path(name)
        suite = Suite(here, programs, partitions=1)
        suite.start_broker()
        fill(int(suite.url.rpartition(":")[2]), _messages(size * _MIB))
        logbroker = str(Path(sys.executable).with_name("logbroker"))
        seconds: dict[str, list[float]] = {"cp -r": [], "cp -r, sync": [], "logbroker backup": []}
        peak = 0.0
        for _ in range(rounds):
            for label, copy in (("cp -r", _copy), ("cp -r, sync", _copy_and_sync)):
                subprocess.run(["sync", "-f", here], check=True)
                seconds[label].append(_timed(copy, here / "store", here / "copy"))
                shutil.rmtree(here / "copy")
            subprocess.run(["sync", "-f", here], check=True)
            words = [logbroker, "backup", str(here / "b"), "--keep", "1", "--server", suite.url]
            took, most = _peak(words)
            seconds["logbroker backup"].append(took)
            peak = max(peak, most)
        restored, most = _restore(here, programs, logbroker)
        seconds["logbroker restore"] = [restored]
        peak = max(peak, most)
    best = median(seconds["cp -r"])
    rows = [
        [label, f"{median(one):.2f}", f"{size / median(one):.0f}", f"{best / median(one):.2f}"]
        for label, one in seconds.items()
    ]
    click.echo(f"{size} MiB in {size * _MIB // _BLOCK} messages, {rounds} rounds, medians")
    click.echo(table(["", "s", "MiB/s", "of cp -r"], rows))
    click.echo(f"most memory of a backup or restore: {peak:.0f} MiB")


def _restore(here: Path, programs: Processes, logbroker: str) -> tuple[float, float]:
    address, store = f"127.0.0.1:{free_port()}", here / "other"
    words = [logbroker, "run", "--store-dir", str(store), "--listen", address, "--http", ""]
    programs.start("other", [*words, "--partitions", "1"])
    wait_until("it is ready", (store / "broker.json").exists, 30)
    return _peak([logbroker, "restore", str(here / "b"), "--server", f"nats://{address}"])


if __name__ == "__main__":
    main()
