"""Our programs without the half second of imports: forked from a process that has done them.

A fork has its own arguments, environment, folder, standard files and session, and does what `python
-c CODE` does. Journeys, and tests of a start itself, start the real program.
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

_ROOT = Path(__file__).parents[2]
_WITHOUT_WEB = "import sys; sys.modules['aiohttp'] = None; import {}"  # as these programs do it
_IMPORTS = {
    "shipper": _WITHOUT_WEB.format("shipper.agent, shipper.status.report"),
    "receiver": _WITHOUT_WEB.format(
        "receiver.replay.replay, receiver.search.cli, receiver.verify.verify, receiver.pipeline"
    ),
    "broker": "import broker.commands.run, broker.console.server, broker.inspect.metrics",
}
_PROGRAMS = {name: name for name in ("shipper", "receiver", "broker")} | {"tests.secured": "broker"}
"""What is forked when it is started as `python -m`, and which imports it needs."""
_AS_PROGRAM = "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_MESSAGE = 1 << 20


class ForkServer:
    """A process that has imported a program, forks, and reports how forks ended; ends with us."""

    def __init__(self, program: str) -> None:
        """Start it; forks wait until it has imported what belongs to the program."""
        self._asking = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"from {__name__} import serve; serve({theirs.fileno()}, {program!r})"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def ask(self, request: object) -> int:
        """Return the process id of a new fork or, given that of an ended one, its exit code."""
        with self._asking:
            self._requests.send(json.dumps(request).encode())
            answer = self._requests.recv(_MESSAGE)
        if not answer:
            raise RuntimeError("the process that programs are forked from has died")
        return int(answer)


fork_server = cache(ForkServer)


class Fork:
    """Python that runs some code, of which the test may do what it does of a `subprocess.Popen`."""

    def __init__(
        self,
        program: str,
        code: str,
        *arguments: str,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        """Start it from a process with the program's imports; it appends to its files, if any."""
        self.returncode: int | None = None
        self._server = fork_server(program)
        files = [file and file.name for file in (stdout, stderr)]
        self.pid = self._server.ask([code, arguments, {**env}, str(cwd or Path.cwd()), *files])
        self._process = os.pidfd_open(self.pid)

    def __del__(self) -> None:
        os.close(self._process)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._process], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
        if self.returncode is None:
            self.returncode = self._server.ask(self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._process, number)


def start(arguments: Sequence[str], **how: object) -> "Fork | subprocess.Popen[bytes]":
    """Start one of our programs as a fork, and any other as `subprocess.Popen` does."""
    match arguments:
        case [sys.executable, "-m", program, *words] if program in _PROGRAMS:
            known = {name: how[name] for name in ("env", "cwd", "stdout", "stderr")}
            name = _PROGRAMS[program]
            return Fork(name, _AS_PROGRAM.format(program), *words, **known)  # type: ignore[arg-type]
        case _:
            return subprocess.Popen(arguments, **how)  # type: ignore[call-overload,no-any-return]


def run(
    program: str, *arguments: object, seconds: float = 60.0, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run one of our programs to its end, as a fork; raises `subprocess.TimeoutExpired`."""
    module = program.removeprefix("log")
    with TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("out", "error")]
        with paths[0].open("wb") as out, paths[1].open("wb") as error:
            env, code = os.environ | environment, _AS_PROGRAM.format(module)
            fork = Fork(module, code, *map(str, arguments), env=env, stdout=out, stderr=error)
        try:
            ended = fork.wait(seconds)
        finally:
            fork.send_signal(signal.SIGKILL)
        said = (path.read_text("utf-8", "surrogateescape") for path in paths)
        return subprocess.CompletedProcess([program, *map(str, arguments)], ended, *said)


def serve(number: int, program: str) -> None:
    """Import a program, then fork for each request; returns in each fork when its code has."""
    exec(_IMPORTS[program])
    os.umask(0o022)
    gc.collect()
    gc.freeze()
    exec(_next_code(socket.socket(fileno=number)), {"__name__": "__main__"})


def _next_code(requests: socket.socket) -> str:
    """Return what a fork is to run, in that fork; nothing at the end of the requests."""
    while data := requests.recv(_MESSAGE):
        request = json.loads(data)
        if isinstance(request, int):
            code = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
            requests.send(str(code).encode())
        elif os.fork() == 0:
            _become(requests, *request[1:])
            return str(request[0])
    return ""


def _become(
    requests: socket.socket,
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    *files: str | None,
) -> None:
    """Make of this process what one is that has just been started so."""
    os.setsid()
    for number, path in enumerate(files, 1):
        if path:
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    requests.send(str(os.getpid()).encode())
    requests.detach()  # all that is open is closed here
    os.closerange(3, 1024)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
