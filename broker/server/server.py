"""nats-server as a child process: checked, started, waited for and ended. Knows no stream and no policy."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from broker.app.exits import ConfigurationError, OperatorError
from broker.server.serverlog import Level, News, Said, explain, read_line, what

__all__ = ["Ports", "Server", "check", "started"]

_LEASH = Path(__file__).with_name("leash.py")
_LAST_WORDS = 50
_LONGEST = 65536  # bytes of a line that is not yet at its end
_LOOK_EVERY = 0.01  # seconds between two looks for the ports file
_LOOKS_UNTIL_WORD = 1000  # about ten seconds
_GARBAGE = "400"  # percent: little of what it holds lives on, so twice collecting it costs a third of its time
_RELOAD = 30.0  # seconds
_SAYS_READY = 5.0  # seconds
_LAME_DUCK = 3.5  # seconds for leaders to move away and clients to be told
_CLEAN_STOP = 7.0  # seconds for that and the stop itself; the whole program has ten
logger = logging.getLogger("nats-server")


class Ports:
    """Where the server listens, as its ports file says; `http` is None without monitoring."""

    __slots__ = ("client", "http")

    def __init__(self, client: int, http: int | None) -> None:
        """Hold the two."""
        self.client = client
        self.http = http


async def check(binary: Path, conf: Path, environment: Mapping[str, str]) -> None:
    """Let nats-server check its configuration, which may refer to the environment given; raises `ConfigurationError` with what it says."""
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
        lines = output.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise ConfigurationError(f"{binary} refuses {conf}: {lines[-1]}")


class Server:
    """A running nats-server."""

    def __init__(self, process: Process, folder: Path) -> None:
        """Take over a child that was started with `folder` as its ports_file_dir."""
        self._process = process
        self._folder = folder
        self._said: deque[Said] = deque(maxlen=_LAST_WORDS)
        self._answer: asyncio.Future[str] | None = None
        self._told = {
            news: asyncio.Event() for news in (News.READY, News.CLOSING, News.CANNOT_DECRYPT)
        }
        self._listens = False
        self._rest = b""
        self.commit = ""
        """Of nats-server's source, as it says."""

    @property
    def pid(self) -> int:
        """The process id of nats-server."""
        return self._process.pid

    @property
    def cannot_decrypt(self) -> bool:
        """Whether it has found streams that it cannot decrypt, and goes on as if there were none."""
        return self._told[News.CANNOT_DECRYPT].is_set()

    async def ports(self) -> Ports:
        """Wait until the server listens, however long it takes to bring back its store, and return where."""
        looks = 0
        while True:
            looks += 1
            if looks % _LOOKS_UNTIL_WORD == 0:
                logger.info("it is still bringing back its store")
            for path in self._folder.glob(f"*_{self.pid}.ports"):
                with suppress(ValueError, KeyError, IndexError):  # half written: look again
                    ports = _read_ports(json.loads(path.read_text("utf-8")))
                    self._listens = True
                    with suppress(TimeoutError):
                        # all that it has to say of its store is heard by then
                        async with asyncio.timeout(_SAYS_READY):
                            await self._told[News.READY].wait()
                    return ports
            await asyncio.sleep(_LOOK_EVERY)

    async def attend(self) -> None:
        """Pass on what the server says until it ends; then raise `OperatorError` with the reason.

        Must run as long as the server does: a child whose pipe nobody reads stands still.
        """
        await self._listen()
        code = await self._process.wait()
        reason = explain(tuple(self._said))
        raise OperatorError(f"nats-server ended ({_ending(code)}){': ' if reason else ''}{reason}")

    async def _listen(self) -> None:
        stream = self._process.stdout
        if stream is None:
            raise OperatorError("nats-server was started without a pipe")
        while data := await stream.read(_LONGEST):
            *lines, rest = (self._rest + data).split(b"\n")
            # by its beginning a line tells whose words it holds: what is too long loses its end
            self._rest = rest[:_LONGEST]
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        said = read_line(line.decode("utf-8", "replace").rstrip())
        if not said.is_of_connection:
            self._said.append(said)
            self._understand(said)
        if said.level < Level.FATAL:  # what it dies of is said once, by whoever asks why it ended
            logger.log(said.level, "%s", said.text)

    def _understand(self, said: Said) -> None:
        news = what(said)
        if news is News.RELOADED or news is News.NOT_RELOADED:
            self._reloaded("" if news is News.RELOADED else said.text)
        elif news is News.COMMIT:
            self.commit = said.text.split("[")[-1].rstrip("]")
        elif news is not None:
            self._told[news].set()

    def _reloaded(self, refusal: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(refusal)

    async def reload(self, patience: float = _RELOAD) -> None:
        """Make the server read its configuration again; returns when it has.

        Raises `OperatorError` when it says that it goes on with the old one, or says nothing for `patience` seconds.
        """
        self._answer = asyncio.get_running_loop().create_future()
        self._signal(signal.SIGHUP)
        try:
            async with asyncio.timeout(patience):
                refusal = await self._answer
        except TimeoutError:
            raise OperatorError(f"nats-server did not reload within {patience:g} s") from None
        finally:
            self._answer = None
        if refusal:
            raise OperatorError(f"nats-server goes on with its old configuration: {refusal}")

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
        closing = asyncio.ensure_future(self._told[News.CLOSING].wait())
        try:
            if self._listens:  # a duck that has no clients yet would not even say that it is one
                self._signal(signal.SIGUSR2)
                await asyncio.wait(
                    {ended, closing}, timeout=_LAME_DUCK, return_when=asyncio.FIRST_COMPLETED
                )
            # by itself it would now close one client after the other, over half a minute; SIGTERM says nothing to a duck
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

    async def _drained(self) -> None:
        await self._listen()
        await self._process.wait()


@asynccontextmanager
async def started(
    binary: Path, conf: Path, memory: int, inherited: int, environment: Mapping[str, str]
) -> AsyncIterator[Server]:
    """Run nats-server with an addition to its environment; it ends with this block, and with this process in every case.

    `memory` is its GOMEMLIMIT in bytes, `inherited` the descriptor of the store's lock, which it keeps. Its own
    process group keeps a terminal's Ctrl-C from it: it is told to stop by us.
    """
    folder = conf.parent
    for stale in folder.glob(
        "*.ports"
    ):  # of servers that were killed; the lock says that none lives
        stale.unlink(missing_ok=True)
    leash = (sys.executable, "-I", "-S", _LEASH, str(os.getpid()))
    process = await asyncio.create_subprocess_exec(
        *leash,
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
    server = Server(process, folder)
    try:
        yield server
    finally:
        await asyncio.shield(server.end())


def _read_ports(content: dict[str, list[str]]) -> Ports:
    client = urlsplit(content["nats"][0]).port
    http = [urlsplit(url).port for url in content.get("monitoring", [])]
    if client is None:
        raise ValueError("no port")
    return Ports(client, http[0] if http else None)


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
