"""Every command that a page names is carried out, on one broker with lines and on what a receiver has of them.

What is in the scripts of README, getting-started, broker and security, is run by `test_pages`.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.certificates import make_certificates
from tests.docs.commands import PROGRAMS, blocks, commands
from tests.docs.test_pages import SCRIPTED, TEXTS, elsewhere
from tests.receiver.partition import publish
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, TookTooLong, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.spark, pytest.mark.long]

SCRIPTS = {
    one for page in SCRIPTED for block in blocks(TEXTS[page], "sh") for one in commands(block)
}
# the scripts run the first with what it needs; the other writes what all tests with Spark use, so test_session.py has it write elsewhere
ELSEWHERE = {*SCRIPTS, ("logbroker", "run"), ("logreceiver", "prepare")}
NAMED = {one for text in TEXTS.values() for one in commands(text)} - ELSEWHERE
HERE = {
    r"/srv/logs": "received",
    r"--store-dir \S+": "--store-dir keys",
    r"--server-name": "--http '' --server-name",
    r"/etc/\S+/(\S+)": r"\1",
    r"host-web01.toml": "none.toml",  # the broker here is open
    r"console\.(pem|key)": r"server.\1",
    r"\bHOST\b": "web01",
    r"\bN\b": "2",
}
"""What names that a page makes up are here."""
GOES_ON = ("run", "console", "top", "tail", "--partition", "--config")


def turn(words: str) -> int:
    """Return when a command has its turn: receivers first, whose files others look at, and what changes everything last."""
    begin = words.partition(" ")[0]
    return {"credentials": 1, "partitions": 3}.get(begin, 0 if begin[0] == "-" else 2)


def here(words: str, quarantined: Path) -> list[str]:
    for pattern, ours in HERE.items():
        words = re.sub(pattern, ours, words)
    words = re.sub(r"0[.]0[.]0[.]0:\d+", lambda _: f"127.0.0.1:{free_port()}", words)
    words = re.sub(r"\b(DIR|NAME)\b", lambda _: f"new-{free_port()}", words)
    return [str(quarantined) if word == "FILE" else word for word in shlex.split(words)]


class Site:
    """A broker with a line and a message that is none; all commands find it by their environment."""

    def __init__(self, folder: Path, programs: Processes) -> None:
        self._folder, self._programs = folder, programs
        self._environment = elsewhere() | {"LOGRECEIVER_OUTPUT": "received"}
        self._environment["LOGSHIPPER_FILE"] = "app.log"
        broker = self.start("logbroker", "run", "--store-dir", "store", "--partitions", "3")
        wait_until("the broker is ready", (folder / "store/broker.json").exists, 60, [broker])
        headers = {"Log-Agent": "a", "Log-Read-At": "1", "Log-Spans": "none"}
        server = self._environment["LOGBROKER_SERVER"]
        publish(server, ("logs.p0.a", b"x\n", headers), ("logs.p1.web01", b"hello\n", None))

    @property
    def quarantined(self) -> Path:
        """The file that the receiver made of the message that is none, as soon as it has."""
        return next((self._folder / "received/.quarantine").glob("*.msg"), Path("none"))

    def start(self, program: str, *words: str) -> Process:
        path = Path(sys.executable).with_name(program)
        name = f"{program}-{free_port()}"
        return self._programs.start(name, [path, *words], self._environment, self._folder)

    def run(self, program: str, words: Sequence[str]) -> tuple[int, str]:
        """Run a command within this process; a question is answered by running it again with --yes."""
        environment = self._environment | {"LOGBROKER_STORE_DIR": "keys"}
        done = CliRunner().invoke(PROGRAMS[program], words, env=environment)
        if "--yes does it without asking" in done.output:
            done = CliRunner().invoke(PROGRAMS[program], [*words, "--yes"], env=environment)
        return done.exit_code, f"{done.output} {done.exception}"

    def run_apart(self, program: str, words: Sequence[str]) -> tuple[int, str]:
        """Run a command as a program; one that goes on is ended when it has begun its work."""
        process = self.start(program, *words)
        if words[0] not in GOES_ON:
            return process.wait(60), process.said()

        def works() -> bool:
            if program == "logreceiver":
                return "receiving partitions" in process.said() and self.quarantined.exists()
            return bool(process.said())

        wait_until("it works", lambda: works() or not process.is_running(), 90)
        with suppress(TookTooLong):
            process.wait(0.5)  # what it said is why it does not
        return process.stop(30), process.said()


def test_every_command_of_a_page_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    make_certificates(tmp_path)
    for name in ("console-token", "secret", "none.toml", "app.log"):
        Path(name).touch(0o600)
        Path(name).write_text("" if name.endswith("toml") else "one line, and long enough\n")
    with Processes(tmp_path) as programs:
        site = Site(tmp_path, programs)
        admin = "credentials add admin ops --store-dir keys --output logbroker-admin.toml"
        assert site.run("logbroker", admin.split())[0] == 0

        for program, text in sorted(NAMED, key=lambda one: (turn(one[1]), one)):
            words = here(text, site.quarantined)
            is_apart = words[0] in GOES_ON or words[-1] == "-"
            with subtests.test(f"{program} {text}"):
                code, said = (site.run_apart if is_apart else site.run)(program, words)
                # a command or an option without what it needs
                is_named_only = code == 2 and ("-" not in text or "requires an argument" in said)
                assert code == 0 or is_named_only, said
                assert "Traceback" not in said
