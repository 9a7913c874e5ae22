"""Whatever a bad host does with its credential's rights, the lines of honest hosts arrive."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from broker.auth.permissions import API
from nats_logship.client.access import Access
from nats_logship.client.nkey import seed_of
from nats_logship.wire.streams import MAX_PAYLOAD, POSITIONS_BUCKET
from nats_logship.wire.subjects import Subject, make_inbox
from tests.raw import Answers, Raw
from tests.support.commands import run_command
from tests.support.hostile import acts_on_a_terminal
from tests.support.oracle import judge
from tests.support.processes import Processes, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

BAD, HONEST = "evil", ("web01", "web02")
OF_HOSTS = {f"logs.p{number}.{host}" for number in range(2) for host in (*HONEST, BAD)}
OWN = str(Subject.for_host(BAD, 2))
SOON = 30.0  # seconds in which a line comes on a busy machine, whatever the bad host does


@dataclass
class Host:
    """A host that ships what is in its log."""

    name: str
    log: Path
    received: Path

    def write(self) -> None:
        with self.log.open("ab") as log:
            log.write(b"%b says %d\n" % (self.name.encode(), log.tell()))

    def has_arrived(self) -> bool:
        return self.received.exists() and self.received.stat().st_size >= self.log.stat().st_size


class Site(Suite):
    """A suite with a receiver and hosts that have credentials; the `other` host has no shipper."""

    def __init__(self, folder: Path, programs: Processes, hosts: Sequence[str], other: str) -> None:
        super().__init__(folder, programs)
        self.access = Access(nkey=self.credential("admin", "ops"))
        self.start_broker()
        arguments = ["--config", self.credential("receiver", "all"), "--output", self.output]
        arguments += ["--state-dir", folder / "state", "--path-template", "{host}/{file}"]
        self.receiver = self.start_program("logreceiver", "receiver", arguments)
        for host in (*hosts, other):
            self.credential("host", host)
        self.hosts = [self._ship(host) for host in hosts]

    def connect(self, name: str, stack: ExitStack) -> Raw:
        seed = seed_of((self.folder / f"{name}.toml").read_text())
        return stack.enter_context(Raw(int(self.url.rpartition(":")[2]), seed=seed))

    def lines_arrive(self, seconds: float) -> None:
        """Have each host write a line, and wait for all that they have written."""
        for one in self.hosts:
            one.write()
        come = lambda: all(one.has_arrived() for one in self.hosts)  # noqa: E731
        wait_until("lines come", come, seconds, [self.receiver])

    def _ship(self, host: str) -> Host:
        log = self.folder / f"{host}.log"
        log.touch()
        arguments = ["--config", self.folder / f"host-{host}.toml", "--file", log]
        self.start_program("logshipper", f"shipper-{host}", arguments)
        return Host(host, log, self.output / host / str(log).lstrip("/"))


Connect = Callable[[], Raw]
"""Opens a connection of the bad host.

As many as the server gives it live until its operation is over.
"""


def publish(
    connect: Connect, *messages: Sequence[dict[str, object]], payload: bytes
) -> list[Answers]:
    common = {"file": "", "start": 0, "end": 2, "size": 2, "lines": 1}
    head = "Log-Agent: evil-agent\r\nLog-Read-At: 1\r\nLog-Spans: "
    sections = ([common | one for one in spans] for spans in messages)
    texts = (json.dumps(one, separators=(",", ":")) for one in sections)
    return [connect().publish(OWN, payload, header=head + text) for text in texts]


def gaps(connect: Connect) -> list[Answers]:
    spans = [{"start": start, "end": start + 2} for start in (100, 200)]
    files = (range(first, first + 750) for first in (1_000, 2_000))
    messages = [[{"id": f"{number}", **span} for number in ids] for ids in files for span in spans]
    return publish(connect, *messages, payload=b"x\n" * 750)


def paths(connect: Connect) -> list[Answers]:
    """Name files by paths that lead elsewhere."""
    names = (
        *("../../../../escaped", "/../escaped", "%2e%2e/escaped", "/x/%00/escaped"),
        *("/" + "y" * 4_000, "/.quarantine/escaped", "/web01.log/%1b[31mescaped"),
    )
    messages = [[{"file": name, "id": f"path{number}"}] for number, name in enumerate(names)]
    return publish(connect, *messages, payload=b"x\n")


def large_positions(connect: Connect) -> list[Answers]:
    """Write its own positions 20 times, as large as they can be."""
    subject, payload = f"$KV.LOGS_POSITIONS.{BAD}", bytes(8_000_000)
    return [connect().publish(subject, payload) for _ in range(20)]


def too_large(connect: Connect) -> list[Answers]:
    """Begin a message over the limit, for which the server hangs up."""
    heard = connect().send(f"PUB {OWN} 999999999\r\n".encode())
    assert heard.is_over
    return [heard]


def subscriptions(connect: Connect) -> list[Answers]:
    """Subscribe 20,000 times."""
    inbox = make_inbox(BAD).encode()
    return [connect().send(b"".join(b"SUB %s.a%d %d\r\n" % (inbox, n, n) for n in range(20_000)))]


def slow_reader(connect: Connect) -> list[Answers]:
    """Ask 2,000 times for its own last line of 64 KiB, and read no answer."""
    client = connect()
    client.publish(OWN, b"x" * 65_535 + b"\n")
    inbox = f"{make_inbox(BAD)}.slow"
    client.subscribe(inbox)
    client.send_only(f"PUB {API}.DIRECT.GET.LOGS.{OWN} {inbox} 0\r\n\r\n".encode() * 2_000)
    return []


OPERATIONS = (gaps, paths, large_positions, too_large, subscriptions, slow_reader)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    with Processes(folder) as programs:
        site = Site(folder, programs, HONEST, BAD)
        site.lines_arrive(90)
        yield site


def test_whatever_a_bad_host_does_honest_lines_arrive(
    site: Site, subtests: pytest.Subtests
) -> None:
    before = files(site)

    for operation in OPERATIONS:
        with subtests.test(operation.__name__), ExitStack() as stack:
            heard = operation(partial(site.connect, f"host-{BAD}", stack))
            for _ in range(2):  # the second time the server has begun to deal with it
                site.lines_arrive(SOON)
            assert not any("Permissions" in error for one in heard for error in one.errors)
            assert site.stream()["state"]["subjects"].keys() <= OF_HOSTS

    with subtests.test("every honest line is there once, and nothing is elsewhere"):
        for one in site.hosts:
            assert judge([one.log.read_bytes()], one.received.read_bytes()).is_perfect
        assert {path for path in files(site) - before if "escaped" in path.name} == set()
        seen = {one.name for one in site.output.iterdir() if not one.name.startswith(".")}
        assert seen == {*HONEST, BAD}
        assert not list(site.output.glob(".quarantine/*"))
        kept = site.ask(lambda c: c.api(f"STREAM.INFO.KV_{POSITIONS_BUCKET}"))["state"]["bytes"]
        assert kept < 2 * MAX_PAYLOAD, "the size of one message"

    for program, command, owner in (
        ("logbroker", "hosts", "admin-ops"),
        ("logreceiver", "status", "receiver-all"),
    ):
        with subtests.test(f"{program} {command} reports the state"):
            shown = run_command(program, command, "--config", site.folder / f"{owner}.toml")
            assert not acts_on_a_terminal(shown)


def files(site: Site) -> set[Path]:
    """Return all files but those in the bad host's own folder, which may have any name."""
    return {path for path in site.folder.rglob("*") if site.output / BAD not in path.parents}
