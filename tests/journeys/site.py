"""A broker with credentials, a receiver and hosts that come in by nothing but the files of their own."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from broker.auth.permissions import API
from broker.cli import group
from broker.client.nkey import seed_of
from broker.wire.subjects import inbox_of
from tests.raw import Raw
from tests.support.processes import Process, Processes, wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Host:
    """A host that ships, and what it has written."""

    name: str
    shipper: Process
    log: Path
    received: Path
    lines: list[bytes] = field(default_factory=list)

    def write(self, count: int = 1) -> None:
        first = len(self.lines)
        more = [b"%s says %d\n" % (self.name.encode(), first + number) for number in range(count)]
        with self.log.open("ab") as log:
            log.writelines(more)
        self.lines += more

    def has_arrived(self) -> bool:
        size = self.received.stat().st_size if self.received.exists() else 0
        return size >= sum(map(len, self.lines))


class Site:
    """The broker, a receiver and hosts; another one has a credential and no shipper."""

    def __init__(self, folder: Path, programs: Processes, hosts: Sequence[str], other: str) -> None:
        self.folder, self.programs = folder, programs
        self.store, self.output = folder / "store", folder / "out"
        self.credentials("add", "admin", "ops")
        run = ["run", "--store-dir", self.store, "--listen", "127.0.0.1:0", "--http", ""]
        broker = self.start("broker", "broker", *run, "--partitions", "2")
        wait_until("the broker is ready", (self.store / "broker.json").exists, 90, [broker])
        self.server = json.loads((self.store / "broker.json").read_text())["server"]
        self.port = int(self.server.rpartition(":")[2])
        self.credentials("add", "admin", "ops", "--server", self.server, "--force")
        for host in (*hosts, other):
            self.credentials("add", "host", host)
        self.credentials("add", "receiver", "all")
        self.receiver = self.start(
            *("receiver", "receiver", "--config", folder / "receiver-all.toml"),
            *("--output", self.output, "--state-dir", folder / "state"),
            *("--path-template", "{host}/{file}"),
        )
        self.hosts = [self._ship(host) for host in hosts]

    def credentials(self, *words: str) -> None:
        """Run a command on the credential store; what it makes is put into the folder."""
        where = ["--output", f"{self.folder}/", "--store-dir", str(self.store)]
        done = CliRunner().invoke(group, ["credentials", *words, *where])
        assert done.exit_code == 0, (done.output, done.exception)

    def start(self, name: str, program: str, *arguments: object) -> Process:
        command = [sys.executable, "-m", program, *map(str, arguments)]
        return self.programs.start(name, command, folder=ROOT)

    def connect(self, name: str) -> Raw:
        """Open a connection with a credential."""
        return Raw(self.port, seed=seed_of((self.folder / f"{name}.toml").read_text()))

    def quarantined(self) -> int:
        """Return how many messages are in quarantine: each has a line of JSON before it."""
        kept = self.output.glob(".quarantine/*.msg")
        return sum(one.read_bytes().count(b'{"subject":') for one in kept)

    def subjects(self) -> set[str]:
        """Return the subjects on which the stream holds messages."""
        with self.connect("receiver-all") as client:
            asked = {"subjects_filter": ">"}
            info = client.ask(f"{API}.STREAM.INFO.LOGS", asked, inbox_of("all"))
        return set(info["state"]["subjects"])

    def lines_arrive(self, seconds: float) -> None:
        """Have each host write a line, and wait for all that they have written."""
        for one in self.hosts:
            one.write()
        come = lambda: all(one.has_arrived() for one in self.hosts)  # noqa: E731
        wait_until("lines come", come, seconds, [self.receiver])

    def _ship(self, host: str) -> Host:
        log = self.folder / f"{host}.log"
        log.touch()
        config = self.folder / f"host-{host}.toml"
        shipper = self.start(f"shipper-{host}", "shipper", "--config", config, "--file", log)
        return Host(host, shipper, log, self.output / host / str(log).lstrip("/"))
