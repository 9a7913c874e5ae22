"""How fast one host ships over a long way: broker and agent in network namespaces of their own, 100 ms there and back.

The namespaces, and all in them, go with the bench. The line is a pair of veth with netem where the kernel has it, else
`bench/tunnel.py`; either way the two ends are the kernel's own TCP, with its slow start and its windows.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.processes import Process, Processes, ProgramDied, wait_until
from bench.stored import judge_stored
from bench.suite import Suite
from bench.table import table

__all__ = ["main"]

_HOST = "web01"
_NEAR, _FAR = "wan0", "wan1"
_NEAR_ADDRESS, _FAR_ADDRESS = "10.213.0.1", "10.213.0.2"
_INSIDE = "LOGSHIP_BENCH_NAMESPACE"
_PORT = 4222


class _Line:
    """The far namespace, and the way to it; the near one is the bench's own."""

    def __init__(self, folder: Path, processes: Processes, delay: float) -> None:
        """Lay the line; `delay` in seconds, each way."""
        _run("ip", "link", "set", "lo", "up")
        holder = processes.start("namespace", ["unshare", "-n", "sleep", "infinity"])
        self._holder = holder.pid
        wait_until("the namespace is there", self._is_there, 10, [holder])
        self.kind = "netem"
        if not self._lay_netem(delay):
            self.kind = "a tunnel, for want of netem"
            self._lay_tunnel(folder, processes, delay)
        _run("ip", "addr", "add", f"{_NEAR_ADDRESS}/24", "dev", _NEAR)
        _run("ip", "link", "set", _NEAR, "mtu", "1500", "txqueuelen", "10000", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", f"{_FAR_ADDRESS}/24", "dev", _FAR)
        self.run("ip", "link", "set", _FAR, "mtu", "1500", "txqueuelen", "10000", "up")

    def inside(self, *command: str) -> list[str]:
        """Return a command as it is run at the far end."""
        return ["nsenter", "-t", str(self._holder), "-n", *command]

    def run(self, *command: str) -> None:
        """Run a command at the far end."""
        _run(*self.inside(*command))

    def _is_there(self) -> bool:
        own = Path("/proc/self/ns/net").readlink()
        return Path(f"/proc/{self._holder}/ns/net").readlink() != own

    def _lay_netem(self, delay: float) -> bool:
        _run("ip", "link", "add", _NEAR, "type", "veth", "peer", "name", _FAR)
        _run("ip", "link", "set", _FAR, "netns", str(self._holder))
        shaping = ["netem", "delay", f"{delay * 1000:g}ms", "limit", "100000"]
        try:
            _run("tc", "qdisc", "add", "dev", _NEAR, "root", *shaping)
            self.run("tc", "qdisc", "add", "dev", _FAR, "root", *shaping)
        except subprocess.CalledProcessError:
            _run("ip", "link", "del", _NEAR)
            return False
        return True

    def _lay_tunnel(self, folder: Path, processes: Processes, delay: float) -> None:
        ready = folder / "tunnel-is-ready"
        words = [_NEAR, _FAR, str(self._holder), str(delay), str(ready)]
        tunnel = processes.start("tunnel", [sys.executable, "-m", "bench.tunnel", *words])
        wait_until("the tunnel is there", ready.exists, 10, [tunnel])

    def round_trip(self) -> str:
        """Return what a ping says; empty where there is none."""
        try:
            words = self.inside("ping", "-q", "-c", "3", "-i", "0.2", _NEAR_ADDRESS)
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return ""
        return said.strip().rpartition("\n")[2]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _refusal(error: Exception) -> str:
    said = error.stderr.decode() if isinstance(error, subprocess.CalledProcessError) else str(error)
    return f"cannot lay a line here, which takes namespaces, and netem or /dev/net/tun: {said.strip().rpartition(chr(10))[2]}"


def _ship(suite: Suite, processes: Processes, line: _Line, backlog: Path, mode: str) -> float:
    """Ship once and return the seconds that it took."""
    host = f"{_HOST}-{mode}-{backlog.stat().st_mtime_ns}-{time.monotonic_ns()}"
    command = [str(Path(sys.executable).with_name("logshipper")), "--file", str(backlog), "--once"]
    command += ["--server", suite.url, "--host", host, "--compression", mode]
    command += ["--state-dir", str(suite.shipper_state(host)), "--patience", "60s"]
    began = time.monotonic()
    agent: Process = processes.start(f"agent-{host}", line.inside(*command))
    if code := agent.wait(600):
        sys.exit(f"logshipper ended with {code}: {agent.last_words()}")
    seconds = time.monotonic() - began
    verdict = asyncio.run(judge_stored(suite.url, host, 1, [backlog]))
    print(f"{mode}: {verdict}", flush=True)
    if not verdict.is_perfect:
        sys.exit(1)
    return seconds


@click.command()
@click.option("--size", default=400, show_default=True, help="Backlog in MB (1e6 bytes).")
@click.option("--mode", "modes", multiple=True, default=("auto", "none"), show_default=True)
@click.option("--runs", default=3, show_default=True)
@click.option("--round-trip", default=0.1, show_default=True, help="Seconds there and back.")
def main(size: int, modes: tuple[str, ...], runs: int, round_trip: float) -> None:
    """Measure an agent over a long way; exit 1 when a line is not stored as it was written."""
    if _INSIDE not in os.environ:
        os.environ[_INSIDE] = "1"
        who = ["-n"] if os.geteuid() == 0 else ["-rn"]
        try:
            _run("unshare", *who, "true")
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(_refusal(error))
        os.execvp("unshare", ["unshare", *who, sys.executable, "-m", "bench.wan", *sys.argv[1:]])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed agent has its bytecode, too
    with tempfile.TemporaryDirectory(prefix="logship-wan-") as name, Processes(Path(name)) as all_:
        folder = Path(name)
        try:
            line = _Line(folder, all_, round_trip / 2)
        except (OSError, subprocess.CalledProcessError, ProgramDied) as error:
            sys.exit(_refusal(error))
        print(f"line: {line.kind}; {line.round_trip()}", flush=True)
        suite = Suite(folder, all_, partitions=1)
        suite.url = f"nats://{_NEAR_ADDRESS}:{_PORT}"
        suite.start_broker("--allow-anonymous")  # the line is nobody else's
        backlog = folder / "backlog.log"
        write_backlog(backlog, size * 1_000_000 // LINE_BYTES)
        rows = []
        for mode in modes:
            took = [_ship(suite, all_, line, backlog, mode) for _ in range(runs)]
            rows.append(
                [mode, f"{size / statistics.median(took):.1f}", f"{statistics.median(took):.1f}"]
            )
    print(table([f"{size} MB", "MB/s", "s"], rows))


if __name__ == "__main__":
    main()
