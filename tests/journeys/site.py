"""A broker with credentials, and whatever comes in by them."""

import asyncio
import json
import sys
import tomllib
from pathlib import Path

from click.testing import CliRunner

from bench.processes import Process, Processes, wait_until
from broker.cli import group
from broker.client.access import Access
from broker.client.connection import Connection
from broker.wire.subjects import inbox_of

ROOT = Path(__file__).parents[2]


class Site:
    """A broker with credentials, and whatever comes in by them."""

    def __init__(self, folder: Path, programs: Processes) -> None:
        self.folder, self.programs = folder, programs
        self.store = folder / "store"
        self.credentials("add", "admin", "ops")
        run = ["run", "--store-dir", self.store, "--listen", "127.0.0.1:0", "--http", ""]
        broker = self.start("broker", "broker", *run, "--partitions", "2")
        wait_until("the broker is ready", (self.store / "broker.json").exists, 90, [broker])
        self.server = json.loads((self.store / "broker.json").read_text())["server"]
        self.credentials("rotate", "admin", "ops", "--server", self.server, "--force")

    def credentials(self, *words: str) -> None:
        carried = ["--output", f"{self.folder}/"] if words[0] != "revoke" else []
        done = CliRunner().invoke(
            group, ["credentials", *words, *carried, "--store-dir", str(self.store)]
        )
        assert done.exit_code == 0, (done.output, done.exception)

    def operate(self, *words: str) -> None:
        """Run a command of `logbroker` as the admin."""
        done = CliRunner().invoke(group, [*words, "--config", str(self.folder / "admin-ops.toml")])
        assert done.exit_code == 0, (done.output, done.exception)

    def start(self, name: str, program: str, *arguments: object) -> Process:
        command = [sys.executable, "-m", program, *map(str, arguments)]
        return self.programs.start(name, command, folder=ROOT)

    def ship(self, name: str, file: str, *options: object) -> Process:
        log = ("--file", self.folder / "app.log")
        return self.start(name, "shipper", "--config", self.folder / file, *log, *options)

    def publish(
        self, host: str, subject: str, *messages: tuple[bytes, dict[str, str] | None]
    ) -> int:
        """Publish as a plain client does that has a host's credential; return the last sequence."""
        settings = tomllib.loads((self.folder / f"host-{host}.toml").read_text("utf-8"))
        access = Access(nkey_seed=settings["nkey_seed"])

        async def store() -> int:
            connection = Connection([self.server], host, (inbox_of(host),), access)
            try:
                return [await connection.ask(subject, *message) for message in messages][-1]["seq"]
            finally:
                await connection.close()

        return asyncio.run(store())
