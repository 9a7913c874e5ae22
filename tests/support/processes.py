"""Real programs as processes: started, killed, ended, and removed with all that they started.

Each runs in a session of its own, and sessions that its children open are remembered: so the whole
tree is found again after its head was killed and its children were adopted.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

_LAST_OUTPUT = 2000
_MOMENT = 0.01  # seconds
_END = 10.0  # seconds in which programs end that are asked to
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}  # a checkout is compiled when it first runs


def installed(program: str) -> str:
    return str(Path(sys.executable).with_name(program))


class ProgramDied(Exception):
    """A program ended although it was needed; the message holds its last arguments."""


class TookTooLong(Exception):
    """Something that was waited for did not come about in time."""


def wait_until(
    what: str,
    holds: Callable[[], bool],
    seconds: float,
    watched: Sequence["Process"] = (),
    every: float = 0.05,
) -> None:
    """Return as soon as `holds()` is true, which is called `every` so many seconds.

    Raises `TookTooLong` after `seconds`, `ProgramDied` if one of the `watched` programs ends first.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        for process in watched:
            process.check()
        if time.monotonic() > deadline:
            arguments = "".join(f"\n{process.name}: {process.last_output()}" for process in watched)
            raise TookTooLong(f"{what}: not within {seconds:g} s{arguments}")
        time.sleep(every)


class Running(Protocol):
    """What is asked of a program that was started."""

    pid: int

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises `subprocess.TimeoutExpired`."""


Launch = Callable[..., Running]
"""Starts a program, by the arguments of `subprocess.Popen`."""


@dataclass(slots=True, eq=False)
class Process:
    """A started program; `log` collects its stdout and stderr, over all of its starts."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    environment: Mapping[str, str]
    folder: Path | None = None
    launch: Launch = subprocess.Popen
    starts: int = 0
    sessions: dict[int, str] = field(default_factory=dict)
    """When the leader of each session began, as in stat; empty if it had ended when found."""
    popen: Running | None = None

    def start(self) -> None:
        if self.is_running():
            raise RuntimeError(f"{self.name} runs already")
        with self.log.open("ab") as log, _signals_held():
            self.popen = self.launch(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **_INSTALLED, **self.environment},
                start_new_session=True,
            )
            self.sessions[self.popen.pid] = when_began(self.popen.pid)
        self.starts += 1

    @property
    def pid(self) -> int:
        """The process id of the latest start; also the id of its session."""
        if self.popen is None:
            raise RuntimeError(f"{self.name} was never started")
        return self.popen.pid

    def is_running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def check(self) -> None:
        if self.popen is not None and (code := self.popen.poll()) is not None:
            raise ProgramDied(f"{self.name} ended with {code}: {self.last_output()}")

    def read_log(self) -> str:
        if not self.log.exists():
            return ""
        return self.log.read_bytes().decode(errors="replace").strip()

    def last_output(self) -> str:
        return self.read_log()[-_LAST_OUTPUT:].strip()

    def catches(self, number: int) -> bool:
        """Whether it handles a signal that would end it otherwise (proc(5))."""
        caught = proc(self.pid, "status").partition("SigCgt:")[2].split()
        return bool(caught and int(caught[0], 16) >> (number - 1) & 1)

    def kill(self) -> None:
        """Send -9 to the program itself, as the OOM killer would; its children have to find out."""
        self.tree()
        self.send(signal.SIGKILL)
        self.wait(10)

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); does not wait."""
        self.send(signal.SIGTERM)

    def hang_up(self) -> None:
        """Ask it to read its settings again (SIGHUP); does not wait."""
        self.send(signal.SIGHUP)

    def kill_tree(self) -> None:
        """Kill it and all descendants, also one that starts right now, within a second."""
        for _ in range(20):
            pids = self.tree()
            if self.popen is not None:
                self.popen.poll()  # a zombie is none of them, and nobody else's
            if not pids:
                return
            _send(pids, signal.SIGKILL)
            time.sleep(0.05)

    @contextmanager
    def stopped(self) -> Iterator[list[int]]:
        """Stop it and all that it has started; yields their ids, in the order of going on."""
        pids = self.tree()
        _send(pids, signal.SIGSTOP)
        yield pids
        _send(pids, signal.SIGCONT)

    def wait(self, seconds: float) -> int:
        """Wait for its end and return its exit code; raises `TookTooLong`."""
        if self.popen is None:
            raise RuntimeError(f"{self.name} was never started")
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            text = f"{self.name} did not end within {seconds:g} s: {self.last_output()}"
            raise TookTooLong(text) from None

    def stop(self, seconds: float = 15) -> int:
        self.terminate()
        return self.wait(seconds)

    def tree(self) -> list[int]:
        """Return the ids of all living processes that it started, at earlier starts too."""
        found: set[int] = set()
        living = _living()
        while more := {
            pid
            for pid, (parent, session, _) in living.items()
            if pid not in found and (parent in found or self._has(session, living))
        }:
            found |= more
            for session in {living[pid].session for pid in more}:
                began = _began(session, living) or self.sessions.get(session, "")
                self.sessions[session] = began
        return sorted(found)

    def _has(self, session: int, living: Mapping[int, "_Living"]) -> bool:
        """Whether it is ours: Linux gives the number of one that has ended to another."""
        began = self.sessions.get(session)
        return began is not None and _began(session, living) in ("", began)

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):  # another thread has seen its end just now
            if self.is_running():
                os.kill(self.pid, number)


class Processes:
    """The programs of a test, a demo or a measurement; none of them outlives the `with`.

    A signal that would end this process leaves through it, unless it is handled otherwise.
    """

    def __init__(self, folder: Path, launch: Launch = subprocess.Popen) -> None:
        """Keep logs in `folder`, which must exist; `launch` starts each program."""
        self._folder = folder
        self._launch = launch
        self._started: list[Process] = []
        self._deadly: list[int] = []

    def __enter__(self) -> "Processes":
        if threading.current_thread() is threading.main_thread():
            self._deadly = [one for one in _ENDING if signal.getsignal(one) is signal.SIG_DFL]
        for number in self._deadly:
            signal.signal(number, leave)
        return self

    def __exit__(self, *_: object) -> None:
        with _signals_held():
            self.end_all()
        for number in self._deadly:
            signal.signal(number, signal.SIG_DFL)

    def start(
        self,
        name: str,
        arguments: Sequence[str | os.PathLike[str]],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Process:
        texts = tuple(os.fspath(argument) for argument in arguments)
        log = self._folder / f"{name}.log"
        process = Process(name, texts, log, environment or {}, folder, self._launch)
        self._started.append(process)
        process.start()
        return process

    def end_all(self) -> None:
        """End every program: first asked, then killed with all of its children."""
        ending = [*reversed(self._started)]
        for process in ending:
            process.send(signal.SIGSTOP)  # it starts nothing more while we look
            process.tree()  # its children are unknown once it has gone
            process.terminate()
            process.send(signal.SIGCONT)
        deadline = time.monotonic() + _END
        while any(process.is_running() for process in ending) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in ending:
            process.kill_tree()
        self._started.clear()


def leave(number: int, _frame: object) -> None:
    """End by a signal, as its handler: through every `with`, with the code of a shell."""
    sys.unraisablehook = lambda lost: _leave_again(lost, number)
    sys.exit(128 + number)


def _leave_again(lost: "sys.UnraisableHookArgs", number: int) -> None:
    """Send the signal again if it came where nothing can be raised, as in a destructor."""
    if lost.exc_type is not SystemExit:
        sys.__unraisablehook__(lost)
        return
    threading.Timer(_MOMENT, os.kill, (os.getpid(), number)).start()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back what signal handlers raise: a program that just began would be unknown."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in (signal.SIGINT, *_ENDING)
        if callable(signal.getsignal(number))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in heard:
            signal.raise_signal(late)


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class _Living(NamedTuple):
    parent: int
    session: int
    began: str


def _began(pid: int, living: Mapping[int, _Living]) -> str:
    return living[pid].began if pid in living else ""


def _living() -> dict[int, _Living]:
    """Return every process that is there and no zombie (proc(5))."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found = {pid: fields for pid in pids if (fields := stat_of(pid)) and fields[0] != "Z"}
    return {pid: _Living(int(one[1]), int(one[3]), one[19]) for pid, one in found.items()}


def proc(pid: int, name: str) -> str:
    """Return the text of a file of a process (proc(5)), empty if the process has gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace")
    except OSError:
        return ""


def when_began(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty if it has ended."""
    return "".join(stat_of(pid)[19:20])


def stat_of(pid: int) -> list[str]:
    """Return the fields of a process from its state on (proc(5), field 3), or an empty list."""
    # the name is in parentheses and may hold anything, spaces and parentheses too
    return proc(pid, "stat").rpartition(")")[2].split()
