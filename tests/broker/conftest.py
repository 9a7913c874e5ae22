"""What the broker's tests share: a connection to `fresh_url`, and `logbroker run` as a real program."""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection

LOGBROKER = (sys.executable, "-m", "broker")


def ask(url: str, *work: Any) -> Any:
    """Return what a function makes of a connection; a text is a call of the API, a pair a message that is published."""

    async def asked() -> Any:
        connection, found = Connection([url], "test"), None
        try:
            for one in work:
                match one:
                    case str():
                        found = await connection.api(one)
                    case (subject, payload, *headers):
                        found = await connection.ask(subject, payload, *headers)
                    case _:
                        found = await one(connection)
        finally:
            await connection.close()
        return found

    return asyncio.run(asked())


class Broker:
    """A running `logbroker run`; `within` is the command that runs it, if any."""

    def __init__(
        self,
        store: Path,
        log: Path,
        *options: str,
        within: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.store = store
        self.log = log
        (store / "broker.json").unlink(missing_ok=True)  # a broker that was killed leaves its own
        with log.open("ab") as sink:
            self.popen = subprocess.Popen(
                [
                    *(*within, *LOGBROKER, "run", "--store-dir", store),
                    *("--listen", "127.0.0.1:0", "--http", "", *options),
                ],
                stderr=sink,
                env={**os.environ, **(environment or {})},
            )

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8")

    def wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while not (self.store / "broker.json").exists():
            assert self.popen.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)
        ready: dict[str, Any] = json.loads((self.store / "broker.json").read_text("utf-8"))
        return ready

    def end(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(10)


StartBroker = Callable[..., Broker]
Call = Callable[..., "subprocess.CompletedProcess[str]"]
Mounted = Callable[[str], tuple[str, ...]]


@pytest.fixture
async def fresh(fresh_url: str) -> AsyncIterator[Connection]:
    connection = Connection([fresh_url], "test")
    yield connection
    await connection.close()


@pytest.fixture
def mounted() -> Mounted:
    """Return the command that runs a program with mounts of its own, made by a line of shell; skips where there are none."""

    def run_with(mounts: str) -> tuple[str, ...]:
        within = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
        if (
            shutil.which("unshare") is None
            or subprocess.run([*within, "sh", "-c", mounts], capture_output=True).returncode
        ):
            pytest.skip("no mount namespaces here")
        return (*within, "sh", "-c", f'{mounts} && exec "$@"', "sh")

    return run_with


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    started: list[Broker] = []

    def start(*options: str, store: Path | None = None, **rest: Any) -> Broker:
        log = tmp_path / f"broker-{len(started)}.log"
        started.append(Broker(store or tmp_path / "store", log, *options, **rest))
        return started[-1]

    yield start
    for broker in started:
        broker.popen.kill()  # its nats-server goes with it; a test proves that
        broker.popen.wait()


def call_logbroker(
    *arguments: str | Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*LOGBROKER, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.fixture
def logbroker_inside(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Call]:
    """Run logbroker in this process: its start, most of a command's time, is left away."""
    from broker.app import program
    from broker.cli import group

    def call(*arguments: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
        words = [str(word) for word in arguments]
        capfd.readouterr()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        # each run adds an option to its group
        own = type(group)("logbroker")
        with pytest.raises(SystemExit) as ended:
            program.run(own, words)
        said = capfd.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), said.out, said.err)

    terminate, handlers = signal.getsignal(signal.SIGTERM), logging.root.handlers[:]
    yield call
    signal.signal(signal.SIGTERM, terminate)
    logging.root.handlers[:] = handlers


@pytest.fixture
def call(logbroker_inside: Call, logs_url: str) -> Call:
    """Run logbroker against the broker of `logs_url`."""
    return lambda *words: logbroker_inside(*words, "--server", logs_url)
