"""One bad host with a credential of its own, two honest ones: whatever it does, their lines arrive."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.auth.permissions import API
from broker.client.nkey import seed_of
from broker.wire.subjects import inbox_of, partition_of
from tests.journeys.hostile import BAD, OPERATIONS, Attack, Operation, Outcome
from tests.journeys.site import Site
from tests.raw import Heard, Raw
from tests.support.oracle import judge
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

HONEST = ("web01", "web02")
OF_HOSTS = {f"logs.p{number}.{host}" for number in range(2) for host in (*HONEST, BAD)}
SOON = 30.0  # seconds in which a line comes on a busy machine, whatever the bad host does


@dataclass
class Honest:
    """A host, and what it has written."""

    host: str
    log: Path
    received: Path
    lines: list[bytes] = field(default_factory=list)

    def write(self) -> None:
        with self.log.open("ab") as log:
            self.lines += [b"%s says %d\n" % (self.host.encode(), len(self.lines))]
            log.write(self.lines[-1])

    def has_arrived(self) -> bool:
        size = self.received.stat().st_size if self.received.exists() else 0
        return size >= sum(map(len, self.lines))


class Besieged(Site):
    """A site with a receiver, two honest hosts, and the credential of a bad one."""

    def __init__(self, folder: Path, programs: Processes) -> None:
        super().__init__(folder, programs)
        self.output = folder / "out"
        for host in (*HONEST, BAD):
            self.credentials("add", "host", host)
        self.credentials("add", "receiver", "all")
        self.port = int(self.server.rpartition(":")[2])
        self.receiver = self.start(
            *("receiver", "receiver", "--config", folder / "receiver-all.toml"),
            *("--output", self.output, "--state-dir", folder / "state"),
            *("--path-template", "{host}/{file}"),
        )
        self.honest = [self._ship(host) for host in HONEST]

    def connect(self, name: str = f"host-{BAD}") -> Raw:
        """Open a connection with the credential of the bad host, or another one."""
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

    def honest_lines_arrive(self, seconds: float) -> None:
        """Have each honest host write a line, and wait for all that they have written."""
        for one in self.honest:
            one.write()
        programs = [self.receiver]
        all_arrived = lambda: all(one.has_arrived() for one in self.honest)  # noqa: E731
        wait_until("honest lines come", all_arrived, seconds, programs)

    def _ship(self, host: str) -> Honest:
        log = self.folder / f"{host}.log"
        log.touch()
        config = self.folder / f"host-{host}.toml"
        self.start(f"shipper-{host}", "shipper", "--config", config, "--file", log)
        return Honest(host, log, self.output / host / str(log).lstrip("/"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    folder = tmp_path_factory.mktemp("hostile")
    with Processes(folder) as programs:
        site = Besieged(folder, programs)
        site.honest_lines_arrive(90)
        yield site


def test_whatever_a_bad_host_does_honest_lines_arrive(
    site: Besieged, subtests: pytest.Subtests
) -> None:
    before = files(site)

    for operation in OPERATIONS:
        with subtests.test(operation.name):
            done(site, operation)

    with subtests.test("every honest line is there once, and nothing is elsewhere"):
        for one in site.honest:
            assert judge(one.lines, one.received.read_bytes()).is_perfect
        assert {path for path in files(site) - before if "escaped" in path.name} == set()
        seen = {one.name for one in site.output.iterdir() if not one.name.startswith(".")}
        assert seen == {*HONEST, BAD}

    for program, *words in (
        ("broker", "hosts", "--config", str(site.folder / "admin-ops.toml")),
        ("receiver", "status", "--config", str(site.folder / "receiver-all.toml")),
    ):
        with subtests.test(f"{program} {words[0]} says how things are"):
            process = site.start(f"{program}-{words[0]}", program, *words)
            assert process.wait(90) == 0, process.said()
            assert all(one.isprintable() or one == "\n" for one in process.said())


def done(site: Besieged, operation: Operation) -> None:
    """Have it done while honest hosts write on, and hold what came of it against what must."""
    kept = site.quarantined() + operation.messages
    with ExitStack() as stack:
        attack = Attack(site.connect, site.port, partition_of(BAD, 2), stack)
        heard = operation.act(attack)
        site.honest_lines_arrive(SOON)
    judge_answers(site, operation, heard)
    wait_until("they are there", lambda: site.quarantined() == kept, 30, [site.receiver])


def judge_answers(site: Besieged, operation: Operation, heard: Sequence[Heard]) -> None:
    match operation.outcome:
        case Outcome.UNSTORED:
            assert site.subjects() <= OF_HOSTS
        case Outcome.REFUSED:
            assert all(one.is_over for one in heard)
        case Outcome.QUARANTINED | Outcome.TAKEN:
            assert not any("Permissions Violation" in e for one in heard for e in one.errors)


def files(site: Besieged) -> set[Path]:
    """Return all files, but those of the bad host's own folder, where anything may be called anything."""
    return {path for path in site.folder.rglob("*") if site.output / BAD not in path.parents}
