"""Programs of ours that start without the half second of CPU in which Python imports them: forked from a process that has done so.

A fork has its own arguments, environment, folder, standard files and session, and does from there on what any start of
`python -m PROGRAM` or `python -c CODE` does. Journeys, and whatever looks at a start itself, start the real thing.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_ROOT = Path(__file__).parents[2]
_PROGRAMS = {"shipper"}  # packages whose programs are forked
_MESSAGE = 1 << 20
_NUMBER = struct.Struct("!i")

Words = Sequence[str | os.PathLike[str]]
Sink = IO[bytes] | int


class Fork:
    """A running fork, of which the test may do what it does of a `subprocess.Popen`."""

    def __init__(self, words: Words, told: int) -> None:
        """`told` is a pipe that says its process id, and its exit code when it has ended."""
        self.args = words
        self.returncode: int | None = None
        self._told = told
        self.pid = self._number()

    def __del__(self) -> None:
        if self._told >= 0:
            os.close(self._told)

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            ending = select.poll()
            ending.register(self._told, select.POLLIN)
            if not ending.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired([*map(str, self.args)], timeout or 0)
            self.returncode = self._number()
            os.close(self._told)
            self._told = -1
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with -9."""
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        data = os.read(self._told, _NUMBER.size)
        if not data:
            raise RuntimeError("the process that programs are forked from has died")
        return int(_NUMBER.unpack(data)[0])


class ForkServer:
    """A process that has imported a package, and forks what is to start; it ends with the process that started it."""

    def __init__(self, package: str) -> None:
        """Start it; forks wait until it has imported all of the package."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c"),
                    f"from {__name__} import serve; serve({theirs.fileno()}, {package!r})",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def end(self) -> None:
        """Have it fork no more, and wait for its end."""
        self._requests.close()
        self._process.wait()

    def start(
        self,
        words: Words,
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None = None,
        stdout: Sink = 1,
        stderr: Sink = 2,
    ) -> Fork:
        """Start what stands behind `python`: `-m PROGRAM ...` or `-c CODE ...`, with nothing on its standard input."""
        asked = [[*map(str, words)], dict(env), str(cwd or Path.cwd())]
        told, tells = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            files = (one if isinstance(one, int) else one.fileno() for one in (stdout, stderr))
            passed = [tells, nothing.fileno(), *files]
            socket.send_fds(self._requests, [json.dumps(asked).encode()], passed)
        os.close(tells)
        return Fork(words, told)


_servers: dict[str, ForkServer] = {}


def fork_server(package: str) -> ForkServer:
    """Return this process's fork server of a package."""
    if package not in _servers:
        _servers[package] = ForkServer(package)
    return _servers[package]


def end_fork_servers() -> None:
    """End them all."""
    for server in _servers.values():
        server.end()
    _servers.clear()


def start(words: Words, **how: object) -> "Fork | subprocess.Popen[bytes]":
    """Start one of our programs as a fork, and any other as `subprocess.Popen` does."""
    match [*map(str, words)]:
        case [sys.executable, "-m", program, *_] if program in _PROGRAMS:
            known = {name: how[name] for name in ("env", "cwd", "stdout", "stderr")}
            return fork_server(program).start(words[1:], **known)  # type: ignore[arg-type]
        case _:
            return subprocess.Popen(words, **how)  # type: ignore[call-overload,no-any-return]


def serve(number: int, package: str) -> None:
    """Import a package, then fork whatever is asked for; returns at the end, and in each fork when its program has."""
    sys.modules["aiohttp"] = None  # type: ignore[assignment] # as each of these programs does
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    os.umask(0o022)
    gc.collect()
    gc.freeze()
    if words := _next_fork(number):
        _run(words)


def _next_fork(number: int) -> list[str]:
    """Return the words of a program in a fork that is to run it; none at the end of the requests."""
    requests = socket.socket(fileno=number)
    tells: dict[int, tuple[int, int]] = {}  # by pidfd: the process, and the pipe that tells
    while True:
        for ready in select.select([number, *tells], [], [])[0]:
            if ready != number:
                pid, pipe = tells.pop(ready)
                os.write(pipe, _NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                os.close(pipe)
                os.close(ready)
                continue
            data, files, *_ = socket.recv_fds(requests, _MESSAGE, 4)
            if not data:
                return []
            pid = os.fork()
            if pid == 0:
                requests.detach()  # all that is open is closed there
                return _become(json.loads(data), files)
            for file in files[1:]:
                os.close(file)
            tells[os.pidfd_open(pid)] = pid, files[0]


def _become(asked: tuple[list[str], dict[str, str], str], files: Sequence[int]) -> list[str]:
    """Make of this process what one is that has just been started so, and return its words."""
    words, environment, folder = asked
    os.setsid()
    for number, file in enumerate(files[1:]):
        os.dup2(file, number)
    os.write(files[0], _NUMBER.pack(os.getpid()))
    os.closerange(3, 1024)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return words


def _run(words: Sequence[str]) -> None:
    kind, what, *_ = words
    sys.argv = [kind, *words[2:]]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})
