"""One bad host with a credential of its own, two honest ones: whatever it does, their lines arrive as ever."""

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.auth.permissions import API
from broker.client.nkey import seed_of
from broker.wire.subjects import inbox_of, partition_of
from tests.journeys.hostile import BAD, OPERATIONS, Attack, Operation, Outcome
from tests.journeys.site import Site
from tests.raw import Heard, Raw
from tests.support.oracle import judge
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

HONEST = ("web01", "web02")
OF_HOSTS = {f"logs.p{number}.{host}" for number in range(2) for host in (*HONEST, BAD)}
EVERY = 0.05  # seconds between two lines of an honest host
LATER = 3.0  # seconds that a line may take longer than usual on a busy machine, whatever the bad host does
ATTEMPTS = 3
QUIET = 1.0  # seconds in which the usual time is found
MEANWHILE = 0.25  # seconds in which honest hosts write on behind an operation


class Honest:
    """A host that writes a line every 50 ms, and when each of them could be read at the receiver."""

    def __init__(self, host: str, log: Path, received: Path) -> None:
        self.host, self.log, self.received = host, log, received
        self.lines: list[bytes] = []
        self.written: list[float] = []
        self.arrived: list[float] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._write, self._watch)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def late(self, since: int, until: int) -> float:
        """Return the longest time from written to readable, in seconds, of the lines `[since, until)`."""
        wait_until(f"{self.host}'s lines come", lambda: len(self.arrived) >= until, 60)
        return max(
            there - written
            for there, written in zip(
                self.arrived[since:until], self.written[since:until], strict=True
            )
        )

    def _write(self) -> None:
        with self.log.open("ab", buffering=0) as log:
            while not self._over.wait(EVERY):
                line = b"%s says %d\n" % (self.host.encode(), len(self.lines))
                self.lines.append(line)
                log.write(line)
                self.written.append(time.monotonic())

    def _watch(self) -> None:
        seen, total = 0, 0
        while not self._over.wait(0.01):
            size = self.received.stat().st_size if self.received.exists() else 0
            now = time.monotonic()
            while seen < len(self.written) and total + len(self.lines[seen]) <= size:
                total += len(self.lines[seen])
                self.arrived.append(now)
                seen += 1


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

    def wait_for_quarantined(self, messages: int) -> None:
        wait_until("they are there", lambda: self.quarantined() == messages, 30, [self.receiver])

    def subjects(self) -> set[str]:
        """Return the subjects on which the stream holds messages."""
        with self.connect("receiver-all") as client:
            asked = {"subjects_filter": ">"}
            info = client.ask(f"{API}.STREAM.INFO.LOGS", asked, inbox_of("all"))
        return set(info["state"]["subjects"])

    def lines(self) -> list[int]:
        return [len(one.lines) for one in self.honest]

    def late(self, since: Sequence[int], until: Sequence[int]) -> float:
        return max(
            one.late(*span)
            for one, span in zip(self.honest, zip(since, until, strict=True), strict=True)
        )

    def act(self, operation: Operation) -> tuple[Sequence[Heard], float]:
        """Have the bad host do it; return what the server said, and how late honest lines were."""
        before = self.lines()
        with ExitStack() as stack:
            attack = Attack(self.connect, self.port, partition_of(BAD, 2), stack)
            heard = operation.act(attack)
            time.sleep(MEANWHILE)
        return heard, self.late(before, self.lines())

    def usual(self) -> float:
        before = self.lines()
        time.sleep(QUIET)
        return self.late(before, self.lines())

    def command(self, program: str, *words: str) -> Process:
        process = self.start(f"{program}-{'-'.join(words[:1])}", program, *words)
        process.wait(90)
        return process

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
        for one in site.honest:
            one.start()
        try:
            site.late([0, 0], [1, 1])
            yield site
        finally:
            for one in site.honest:
                one.stop()


def test_whatever_a_bad_host_does_honest_lines_arrive_as_usual(
    site: Besieged, subtests: pytest.Subtests
) -> None:
    before = files(site)
    usual = statistics.median(site.usual() for _ in range(3))

    for operation in OPERATIONS:
        with subtests.test(operation.name):
            # a busy machine is late now and then, a bad host each time
            attempts = (tried(site, operation) for _ in range(ATTEMPTS))
            assert any(late <= usual + LATER for late in attempts)

    with subtests.test("every honest line is there once, and nothing is elsewhere"):
        for one in site.honest:
            one.stop()
            wait_until(
                f"all of {one.host} is there",
                lambda one=one: one.received.stat().st_size >= sum(map(len, one.lines)),
                60,
            )
            assert judge(one.lines, one.received.read_bytes()).is_perfect
        assert {path for path in files(site) - before if "escaped" in path.name} == set()
        seen = {one.name for one in site.output.iterdir() if not one.name.startswith(".")}
        assert seen == {*HONEST, BAD}

    for program, *words in (
        ("broker", "status", "--config", str(site.folder / "admin-ops.toml")),
        ("broker", "hosts", "--config", str(site.folder / "admin-ops.toml")),
        ("receiver", "status", "--config", str(site.folder / "receiver-all.toml")),
        ("receiver", "offsets", "show", "--config", str(site.folder / "receiver-all.toml")),
    ):
        with subtests.test(f"{program} {words[0]} says how things are"):
            process = site.command(program, *words)
            assert process.wait(0) == 0, process.said()
            assert all(one.isprintable() or one == "\n" for one in process.said())


def tried(site: Besieged, operation: Operation) -> float:
    """Have it done, hold what came of it against what must; return how late honest lines were, in seconds."""
    quarantined = site.quarantined()
    heard, late = site.act(operation)
    judge_answers(site, operation, heard)
    site.wait_for_quarantined(quarantined + operation.messages)
    return late


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
