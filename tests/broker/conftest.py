"""Shared by tests of the broker: a connection to `fresh_url`, and `logbroker run` as a program."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nats_logship.client.connection import Connection
from tests.support import forks, suite
from tests.support.processes import Process, wait_until


def ask(url: str, *work: Any) -> Any:
    """Return the last result of: a call of the API (text), a publish (pair), or a function."""

    async def asked(connection: Connection) -> Any:
        for one in work:
            match one:
                case str():
                    found = await connection.api(one)
                case (subject, payload, *headers):
                    found = await connection.ask(subject, payload, *headers)
                case _:
                    found = await one(connection)
        return found

    return suite.ask(url, asked)


@dataclass(slots=True, eq=False)
class Broker(Process):
    """A running `logbroker run`, and its store."""

    store: Path = Path()

    def ready(self) -> dict[str, Any]:
        """Wait until it is set up, and return what it says of itself."""
        path = self.store / "broker.json"
        wait_until("the broker is ready", path.exists, 60, [self], every=0.01)
        said: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return said


def run_broker(
    store: Path,
    log: Path,
    *options: str | Path,
    within: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Broker:
    """Start `logbroker run`; `within` is the command that runs it, if any."""
    (store / "broker.json").unlink(missing_ok=True)  # a broker that was killed leaves its own
    words = [*within, sys.executable, "-m", "broker", "run", "--store-dir", store]
    words += ["--listen", "127.0.0.1:0", "--http", "", *options]
    given = (tuple(map(str, words)), log, environment or {})
    broker = Broker("logbroker", *given, launch=forks.start, store=store)
    broker.start()
    return broker


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
    """Return a function from a shell line of mounts to a command that runs a program with these."""

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

    def start(*options: str | Path, store: Path = tmp_path / "store", **rest: Any) -> Broker:
        log = tmp_path / f"broker-{len(started)}.log"
        started.append(run_broker(store, log, *options, **rest))
        return started[-1]

    yield start
    for broker in started:
        broker.kill()  # its nats-server ends with it; a test proves that


logbroker = partial(forks.run, "logbroker")


@pytest.fixture
def call(logs_url: str) -> Call:
    """Run logbroker against the broker of `logs_url`."""
    return lambda *arguments: logbroker(*arguments, "--server", logs_url)
