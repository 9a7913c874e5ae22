"""A broker with credentials, and whatever comes in by them."""

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from broker.cli import group
from tests.support.processes import Process, Processes, wait_until

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

    def start(self, name: str, program: str, *arguments: object) -> Process:
        command = [sys.executable, "-m", program, *map(str, arguments)]
        return self.programs.start(name, command, folder=ROOT)

    def ship(self, name: str, file: str, *options: object) -> Process:
        log = ("--file", self.folder / "app.log")
        return self.start(name, "shipper", "--config", self.folder / file, *log, *options)
