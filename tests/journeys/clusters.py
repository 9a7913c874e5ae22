"""A cluster of three brokers under traffic: shippers of several hosts, a receiver, and faults; how long each host waited.

`python -m tests.journeys.clusters [--rounds N] [--fault NAME]… [--networks] [--brokers] [--spark]` is the campaign: it
prints a line for each fault. With networks, which takes root, lines between machines are cut as well; the servers are bare
ones of our configuration, or those of three logbrokers, and the receiver's tasks run in threads, or on Spark.
"""

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from bench.oracle import Verdict, judge
from bench.processes import Process, Processes, wait_until
from bench.received import read_received
from bench.traffic import Traffic
from tests.broker.cluster import Brokers, Cluster, Node
from tests.broker.networks import Machine, machines

INSIDE = "inside"  # a host that is the machine of server n0
HOSTS = ("web01", "web02", "web03.example.net", "db1")
_SETTLED = 10.0  # seconds
RATE = 200  # lines a second and host


@dataclass(slots=True)
class Waits:
    """The longest time for which a host's file did not grow, in seconds, since the last `clear`."""

    output: Path
    hosts: Sequence[str]
    sizes: dict[str, int] = field(default_factory=dict)
    grown: dict[str, float] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        now = time.monotonic()
        for host in self.hosts:
            path = self.output / f"{host}.log"
            size = path.stat().st_size if path.exists() else 0
            self.longest[host] = max(
                self.longest.get(host, 0.0), now - self.grown.setdefault(host, now)
            )
            if size > self.sizes.get(host, 0):
                self.sizes[host], self.grown[host] = size, now

    def clear(self) -> None:
        self.longest.clear()

    @contextmanager
    def watched(self) -> Iterator[None]:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.05):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Stage:
    """The cluster, the hosts and the receiver in one folder; `receiver` starts one, without Spark unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        cluster: Cluster,
        hosts: Sequence[str] = HOSTS,
        machines: Sequence[Machine] = (),
    ) -> None:
        self.machines = machines
        self.folder, self.processes, self.cluster = folder, processes, cluster
        self.output = folder / "out"
        self.files = {host: folder / "hosts" / host / "app.log" for host in hosts}
        self.waits = Waits(self.output, hosts)

    def start_shipper(self, host: str, within: Sequence[str] = ()) -> Process:
        servers = [word for url in self.cluster.urls for word in ("--server", url)]
        return self.processes.start(
            f"logshipper-{host}",
            [
                *within,
                *_program("logshipper"),
                *("--file", self.files[host], "--host", host, *servers),
                *("--state-dir", self.folder / "state" / host),
            ],
        )

    def start_receiver(self) -> Process:
        return self.processes.start(
            "receiver",
            [
                *(sys.executable, "-m", "tests.receiver.without_spark"),
                *(self.output, self.folder / "state-receiver", str(self.cluster.partitions)),
                *self.cluster.urls,
            ],
        )

    def start_real_receiver(self) -> Process:
        servers = [word for url in self.cluster.urls for word in ("--server", url)]
        return self.processes.start(
            "logreceiver",
            [
                *_program("logreceiver"),
                *("--partition", "all", *servers, "--output", self.output),
                *("--state-dir", self.folder / "state-receiver"),
            ],
        )

    def verdicts(self, traffic: Traffic, seconds: float = 60) -> dict[str, Verdict]:
        """Wait until as much has come as was written, then judge."""
        written = {host: traffic.written[file] for host, file in self.files.items()}

        def has_all() -> bool:
            return all(size >= len(written[host]) for host, size in self.sizes().items())

        try:
            wait_until("all is received", has_all, seconds)
        except Exception as late:  # noqa: BLE001 - the verdict says what is missing
            print(f"  {late}")  # noqa: T201
        time.sleep(0.5)
        return {
            host: judge([data], read_received(self.output, host)) for host, data in written.items()
        }

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each host have been received."""
        files = {host: self.output / f"{host}.log" for host in self.files}
        return {host: file.stat().st_size if file.exists() else 0 for host, file in files.items()}

    def wait_for_lines(self, seconds: float = 60) -> None:
        def flow() -> bool:
            return all(self.sizes().values())

        wait_until("lines flow", flow, seconds)


def kill_leader(stage: Stage, chance: random.Random) -> None:
    """Kill the leader of the stream, and start it again."""
    _dead_for(stage.cluster.leader(), chance.uniform(10, 14))


def kill_follower(stage: Stage, chance: random.Random) -> None:
    """Kill another server, and start it again."""
    _dead_for(chance.choice(stage.cluster.others(stage.cluster.leader())), chance.uniform(5, 12))


def kill_offsets_leader(stage: Stage, chance: random.Random) -> None:
    """Kill the leader of the bucket of offsets, and start it again."""
    _dead_for(stage.cluster.leader("KV_LOGS_OFFSETS"), chance.uniform(10, 14))


def end_leader(stage: Stage, chance: random.Random) -> None:
    """Ask the leader to end, and start it again, as an upgrade does."""
    node = stage.cluster.leader()
    node.process.stop(30)
    time.sleep(chance.uniform(0, 5))
    node.start()


def kill_all(stage: Stage, chance: random.Random) -> None:
    """Kill all servers at once, and start them again one by one."""
    for node in stage.cluster.nodes.values():
        node.kill()
    for node in stage.cluster.nodes.values():
        time.sleep(chance.uniform(0, 2))
        node.start()


def wipe(stage: Stage, chance: random.Random) -> None:
    """Kill any server, lose its disk, and start it again with an empty folder."""
    node = chance.choice(list(stage.cluster.nodes.values()))
    node.kill()
    node.wipe()
    time.sleep(chance.uniform(0, 12))
    node.start()


def stand_still(stage: Stage, chance: random.Random) -> None:
    """Stop the leader for 15 s as a machine does that swaps: its lines stay open."""
    node = stage.cluster.leader()
    node.stand_still()
    time.sleep(15)
    node.go_on()


def _dead_for(node: Node, seconds: float) -> None:
    node.kill()
    time.sleep(seconds)
    node.start()


def cut_off_leader(stage: Stage, chance: random.Random) -> None:
    """Cut the leader off from the other servers; clients still get in there."""
    _cut(stage, Machine.cut_from_servers, stage.cluster.leader())


def cut_off_follower(stage: Stage, chance: random.Random) -> None:
    """Cut another server off from the others; clients still get in there."""
    _cut(
        stage,
        Machine.cut_from_servers,
        chance.choice(stage.cluster.others(stage.cluster.leader())),
    )


def isolate(stage: Stage, chance: random.Random) -> None:
    """Cut the leader off from everybody but the host that it runs on."""
    node = stage.cluster.nodes["n0"]
    stage.cluster.lead(node)
    _cut(stage, Machine.cut_from_all, node)


def _cut(stage: Stage, cut: Callable[[Machine], None], node: Node) -> None:
    machine = stage.machines[int(node.name.removeprefix("n"))]
    cut(machine)
    time.sleep(18)
    machine.heal()


_ON_EVERY_MACHINE = (
    *(kill_leader, kill_follower, kill_offsets_leader, kill_all),
    *(end_leader, wipe, stand_still),
)
FAULTS: dict[str, Callable[[Stage, random.Random], None]] = {
    fault.__name__: fault for fault in _ON_EVERY_MACHINE
}
CUTS = {fault.__name__: fault for fault in (cut_off_leader, cut_off_follower, isolate)}


@click.command()
@click.option("--rounds", default=1)
@click.option("--fault", "faults", multiple=True)
@click.option("--seed", default=1)
@click.option("--spark", is_flag=True)
@click.option("--networks", is_flag=True)
@click.option("--brokers", is_flag=True)
def main(
    rounds: int,
    faults: Sequence[str],
    seed: int,
    *,
    spark: bool,
    networks: bool,
    brokers: bool,
) -> None:
    """Run the campaign."""
    if networks and "LOGSHIP_OWN_NETWORK" not in os.environ:
        os.environ["LOGSHIP_OWN_NETWORK"] = "1"
        words = [sys.executable, "-m", "tests.journeys.clusters", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--net", "--mount", "--fork", "--kill-child", *words])
    folder = Path(tempfile.mkdtemp(prefix="clusters"))
    print(folder)  # noqa: T201
    with Processes(folder) as processes:
        three = machines(3) if networks else []
        kind = Brokers if brokers else Cluster
        cluster = kind(folder, processes, [machine.place for machine in three])
        cluster.set_up()
        hosts = (*HOSTS, INSIDE) if networks else HOSTS
        stage = Stage(folder, processes, cluster, hosts, three)
        known = FAULTS | (CUTS if networks else {})
        receiver = stage.start_real_receiver() if spark else stage.start_receiver()
        chance = random.Random(seed)
        with Traffic(list(stage.files.values()), RATE, seed) as traffic:
            shippers = [
                stage.start_shipper(host, three[0].within if host == INSIDE else ())
                for host in stage.files
            ]
            stage.wait_for_lines()
            with stage.waits.watched():
                for number in range(rounds):
                    for name in faults or known:
                        cluster.wait_until_whole()
                        time.sleep(_SETTLED)  # the next one to fail must not be the second at once
                        stage.waits.clear()
                        known[name](stage, chance)
                        time.sleep(8)
                        waits = {h: round(s, 1) for h, s in stage.waits.longest.items()}
                        print(number, name, waits, flush=True)  # noqa: T201
                        for process in (*shippers, receiver):
                            process.check()
            traffic.stop()
            for host, verdict in stage.verdicts(traffic).items():
                print(host, verdict)  # noqa: T201


def _program(name: str) -> list[str]:
    return [str(Path(sys.executable).with_name(name))]


if __name__ == "__main__":
    main()
