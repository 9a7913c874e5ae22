"""Where the time of a backlog goes, stage by stage: read, cut, compress, send, store, fetch, decompress, append, sync, commit.

Agent and worker are looked at by py-spy, a few hundred times a second and without holding them up; what was seen to be at work in each is
its processor time, in parts. Broker, driver and Java are told as wholes.
"""

import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.charge import Charge
from bench.cpu import cpu_by_process, named
from bench.field.logship import Logship
from bench.field.system import System
from bench.options import Field, Question, field_options
from bench.oracle import judge_host
from bench.processes import Process, Processes, ProgramDied, wait_until
from bench.received import received_bytes
from bench.trial import Case, Outcome

__all__ = ["main", "parts"]

_HOST = "web01"
_GB = 1e9
_RATE = 400  # looks a second
_LOOK = 0.01
_PY_SPY = Path(sys.executable).with_name("py-spy")
_SHIPPER, _RECEIVER, _JAVA, _PYTHON = (
    "logshipper",
    "logreceiver",
    "java",
    "python",
)  # as the kernel has them
_WAITS = (
    "select (selectors.py",
    "wait (threading.py",
    "_worker (concurrent/futures/thread.py",
    "manager (pyspark/daemon.py",
    "readinto (socket.py",
)
_AGENT = (
    ("start", ("<frozen importlib",)),
    ("compress", ("shipper/publishing/compression.py",)),
    ("count", ("count_lines",)),
    ("cut", ("shipper/files/blocks.py",)),
    ("read", ("shipper/files/reader.py",)),
    ("send", ("broker/client/", "nats/", "shipper/publishing/")),
)
_WORKER = (
    ("decompress", ("decode_payload",)),
    ("fetch", ("broker/client/", "nats/", "receiver/consume/", "broker/wire/delivery.py")),
    ("append", ("Output.write",)),
    ("sync", ("Output.sync", "receiver/storage/disk.py")),
    ("store", ("receiver/storage/store.py",)),
    ("judge", ("receiver/consume/judging.py", "receiver/storage/tables.py")),
    ("commit", ("receiver/consume/claim.py", "receiver/consume/task.py", "broker/wire/offset.py")),
)
_ABOUT = """\
From the start of an agent until all lines of a backlog are in the received file and committed: user and system seconds per GB (1e9 bytes) \
of lines, by stage. Of the agent and of the worker that writes, what py-spy saw at work, scaled to what they used; it costs some of it \
itself. No line passes through Java: the worker fetches and writes, and what it tells of a stay is a few hundred bytes."""
_QUESTION = Question("stages", _ABOUT, ())


def parts(raw: str, stages: Sequence[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """Return the share of each stage, and of the rest, in stacks as py-spy writes them: `frame;frame;... count`.

    A stack is of the first stage that one of its frames belongs to; one that ends in waiting is not at work.
    """
    seen: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if not any(wait in stack.rpartition(";")[2] for wait in _WAITS):
            seen[_stage(stack, stages)] += int(count)
    whole = sum(seen.values())
    return {name: seen[name] / whole for name in (*dict(stages), "rest")} if whole else {}


def _stage(stack: str, stages: Sequence[tuple[str, Sequence[str]]]) -> str:
    found = (name for name, marks in stages if any(mark in stack for mark in marks))
    return next(found, "rest")


def _measure(_system: System, folder: Path, logs: Path) -> Outcome:
    (backlog,) = logs.glob("*.log")
    size = backlog.stat().st_size
    with Processes(folder) as processes:
        staged = Logship().stage(folder, processes)
        broker, receiver = staged.centre["broker"], staged.centre["receiver"]
        worker = _spy(folder, processes, "worker", "--subprocesses", "--pid", str(receiver.pid))
        wait_until("py-spy looks", lambda: "Sampling" in worker.said(), 30, [worker])
        charge = Charge({"broker": broker}, size)
        before = _used(receiver)
        command = map(str, staged.suite.shipper_command(_HOST, [logs / "*.log"]))
        agent = _spy(folder, processes, "agent", "--", *command)
        wait_until(
            "the backlog is received",
            lambda: received_bytes(staged.output, _HOST) >= size,
            120 + size / 2e6,
            [agent, broker, receiver],
            _LOOK,
        )
        wait_until("it is committed", staged.is_committed, 60, charge.programs, _LOOK)
        after, shipping = _used(receiver), _used(agent)
        used = {"broker": charge.cpu()["broker"]}
        os.kill(worker.pid, signal.SIGINT)
        os.kill(_pid_of(agent, _SHIPPER), signal.SIGTERM)
        for spy in (worker, agent):
            spy.wait(60)
    grown = {name: after[name] - before[name] for name in after}
    used["driver"], used["Java"] = grown[_RECEIVER], grown[_JAVA]
    used |= _parts(folder / "agent.txt", "agent", _AGENT, shipping[_SHIPPER])
    used |= _parts(folder / "worker.txt", "worker", _WORKER, grown[_PYTHON])
    figures = {name: seconds / (size / _GB) for name, seconds in used.items()}
    verdict = judge_host([backlog], staged.output, _HOST)
    return Outcome({"CPU s/GB": sum(figures.values()), **figures}, verdict)


def _spy(folder: Path, processes: Processes, name: str, *words: str) -> Process:
    """Start py-spy, which writes what it has seen of Python to `<name>.txt` once that has ended, or it is interrupted."""
    looks = ("record", "--nonblocking", "--rate", str(_RATE), "--format", "raw")
    output = ("--output", str(folder / f"{name}.txt"))
    return processes.start(name, [_PY_SPY, *looks, *output, *words])


def _used(program: Process) -> dict[str, float]:
    """Return the processor time so far by the names of processes, in seconds."""
    used: dict[str, float] = defaultdict(float)
    for name, seconds in cpu_by_process(program).values():
        used[name] += seconds
    return used


def _pid_of(program: Process, name: str) -> int:
    found = named(program, name)
    if found is None:
        raise ProgramDied(f"{program.name} ended: {program.last_words()}")
    return found


def _parts(
    raw: Path, name: str, stages: Sequence[tuple[str, Sequence[str]]], seconds: float
) -> dict[str, float]:
    shares = parts(raw.read_text("utf-8", "replace"), stages)
    return {f"{name} {stage}": share * seconds for stage, share in shares.items()}


@click.command()
@click.option("--megabytes", multiple=True, type=int, default=(400,), show_default=True)
@field_options
def main(field: Field, megabytes: tuple[int, ...]) -> None:
    """Measure where the time of backlogs of some MB (1e6 bytes) goes; exits with 1 when a line is not as it was written."""
    if not _PY_SPY.exists():
        raise click.UsageError("py-spy is not there: pip install py-spy, or make venv")
    with field.folder() as folder:
        logs = folder / "logs"
        logs.mkdir()
        field.ours().answer(_QUESTION, _cases(megabytes, logs), folder)


def _cases(megabytes: Sequence[int], logs: Path) -> Iterator[Case]:
    for number in megabytes:
        write_backlog(logs / "backlog.log", number * 1_000_000 // LINE_BYTES)
        parameters = {"megabytes": number, "line_bytes": LINE_BYTES}
        yield Case(f"{number:,} MB", parameters, partial(_measure, logs=logs))


if __name__ == "__main__":
    main()
