"""Hosts with nothing but the files of their credentials: lines flow while others are given, and whatever a bad host does.

What a credential has no right to, and messages that are none, are tests of broker/auth and receiver/consume. Here is what it
may do, and does too much of.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.auth.permissions import API
from broker.cli import group
from broker.client.nkey import seed_of
from broker.wire.subjects import Subject, inbox_of
from tests.raw import Heard, Raw
from tests.support.oracle import judge
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BAD, HONEST = "evil", ("web01", "web02")
OF_HOSTS = {f"logs.p{number}.{host}" for number in range(2) for host in (*HONEST, BAD)}
OWN = str(Subject.for_host(BAD, 2))
SOON = 30.0  # seconds in which a line comes on a busy machine, whatever the bad host does


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
    """A broker with credentials, a receiver and hosts that come in by the files of their own; another one has no shipper."""

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
        self.credentials("add", "receiver", "all")
        self.receiver = self.start(
            *("receiver", "receiver", "--config", folder / "receiver-all.toml"),
            *("--output", self.output, "--state-dir", folder / "state"),
            *("--path-template", "{host}/{file}"),
        )
        for host in (*hosts, other):
            self.credentials("add", "host", host)
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


@dataclass(frozen=True)
class Attack:
    """The means of the bad host: as many connections as the server gives it, which live until the operation is over."""

    site: Site
    stack: ExitStack

    def connection(self) -> Raw:
        return self.stack.enter_context(self.site.connect(f"host-{BAD}"))

    def sections(self, *messages: Sequence[dict[str, object]], payload: bytes) -> list[Heard]:
        """Publish messages of these sections in one go."""
        common = {"file": "", "start": 0, "end": 2, "size": 2, "lines": 1}
        return [
            self.connection().publish(OWN, payload, header=_header([common | one for one in spans]))
            for spans in messages
        ]


Operation = Callable[[Attack], Sequence[Heard]]
"""One thing that the bad host does; it returns what the server said to it."""


def _header(sections: Sequence[dict[str, object]]) -> str:
    text = json.dumps(sections, separators=(",", ":"))
    return f"Log-Agent: evil-agent\r\nLog-Read-At: 1\r\nLog-Spans: {text}"


def gaps(attack: Attack) -> list[Heard]:
    """Leave a gap in each of 1,500 files."""
    messages = [
        [
            {"id": f"{number}", "start": start, "end": start + 2}
            for number in range(first, first + 750)
        ]
        for start in (100, 200)
        for first in (1_000, 2_000)
    ]
    return attack.sections(*messages, payload=b"x\n" * 750)


def paths(attack: Attack) -> list[Heard]:
    """Name files by paths that lead elsewhere."""
    names = (
        *("../../../../escaped", "/../escaped", "%2e%2e/escaped", "/x/%00/escaped"),
        *("/" + "y" * 4_000, "/.quarantine/escaped", "/web01.log/%1b[31mescaped"),
    )
    messages = [[{"file": name, "id": f"path{number}"}] for number, name in enumerate(names)]
    return attack.sections(*messages, payload=b"x\n")


def large_positions(attack: Attack) -> list[Heard]:
    """Write its own positions 20 times, as large as they can be."""
    subject, payload = f"$KV.LOGS_POSITIONS.{BAD}", bytes(8_000_000)
    return [attack.connection().publish(subject, payload) for _ in range(20)]


def too_large(attack: Attack) -> list[Heard]:
    """Begin a message over the limit, for which the server hangs up."""
    heard = attack.connection().say(f"PUB {OWN} 999999999\r\n".encode())
    assert heard.is_over
    return [heard]


def subscriptions(attack: Attack) -> list[Heard]:
    """Subscribe 20,000 times."""
    inbox = inbox_of(BAD).encode()
    return [
        attack.connection().say(
            b"".join(b"SUB %s.a%d %d\r\n" % (inbox, n, n) for n in range(20_000))
        )
    ]


def slow_reader(attack: Attack) -> list[Heard]:
    """Ask 2,000 times for its own last line of 64 KiB, and read no answer."""
    client = attack.connection()
    client.publish(OWN, b"x" * 65_535 + b"\n")
    client.subscribe(f"{inbox_of(BAD)}.slow")
    client.shout(f"PUB {API}.DIRECT.GET.LOGS.{OWN} {inbox_of(BAD)}.slow 0\r\n\r\n".encode() * 2_000)
    time.sleep(0.5)
    return []


OPERATIONS: tuple[Operation, ...] = (
    gaps,
    paths,
    large_positions,
    too_large,
    subscriptions,
    slow_reader,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    with Processes(folder) as programs:
        site = Site(folder, programs, HONEST, BAD)
        site.lines_arrive(90)
        yield site


def test_lines_flow_while_other_credentials_are_given_and_their_own_is_rotated(site: Site) -> None:
    # a server that reads its settings anew loses an answer now and then
    for number in range(10):
        for host in site.hosts:
            host.write(3000)
        site.credentials("add", "host", f"other{number}")
    site.credentials("add", "host", HONEST[0], "--force")
    rotated, *others = site.hosts
    rotated.shipper.kill()
    rotated.shipper.start()  # with its new secret

    site.lines_arrive(150)

    for host in site.hosts:
        assert host.received.read_bytes() == b"".join(host.lines)
    assert not any("waiting" in host.shipper.said() for host in others)
    assert "permissions violation" not in site.receiver.said()


def test_whatever_a_bad_host_does_honest_lines_arrive(
    site: Site, subtests: pytest.Subtests
) -> None:
    before = files(site)

    for operation in OPERATIONS:
        with subtests.test(operation.__name__), ExitStack() as stack:
            heard = operation(Attack(site, stack))
            site.lines_arrive(SOON)
            assert not any("Permissions" in error for one in heard for error in one.errors)
            assert site.subjects() <= OF_HOSTS

    with subtests.test("every honest line is there once, and nothing is elsewhere"):
        for one in site.hosts:
            assert judge([b"".join(one.lines)], one.received.read_bytes()).is_perfect
        assert {path for path in files(site) - before if "escaped" in path.name} == set()
        seen = {one.name for one in site.output.iterdir() if not one.name.startswith(".")}
        assert seen == {*HONEST, BAD}
        assert not list(site.output.glob(".quarantine/*"))

    for program, *words in (
        ("broker", "hosts", "--config", str(site.folder / "admin-ops.toml")),
        ("receiver", "status", "--config", str(site.folder / "receiver-all.toml")),
    ):
        with subtests.test(f"{program} {words[0]} says how things are"):
            process = site.start(f"{program}-{words[0]}", program, *words)
            assert process.wait(90) == 0, process.said()
            assert all(one.isprintable() or one == "\n" for one in process.said())


def files(site: Site) -> set[Path]:
    """Return all files, but those of the bad host's own folder, where anything may be called anything."""
    return {path for path in site.folder.rglob("*") if site.output / BAD not in path.parents}
