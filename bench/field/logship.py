"""Our own programs under measurement: a broker, a receiver that is warm, an agent."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.cpu import quiet_after
from bench.field.system import LOOPBACK, Guarantees
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import Suite

_WARM_UP = "logs.p{0}.warm-up{0}"
# CPU seconds, in seconds: a task ends after five of silence, and where the first one does Spark
# loads classes
_QUIET, _TASK = 0.1, 7.0
_ONE_FILE = ("--rotate-size", "0", "--rotate-every", "0")  # per host, as the peers write
_KEPT = Guarantees(acked=True, fsynced=True, ordered=True, survives_kill=True)


@dataclass(frozen=True, slots=True)
class Logship:
    """logship as it is by default, but for rotation; the broker runs `under` another program."""

    name: str = "logship"
    guarantees: Guarantees = _KEPT
    follows: bool = True
    partitions: int = 1
    streams: int = 1
    under: tuple[str, ...] = ()

    def missing(self) -> str:
        """Nothing is: it is installed beside this."""
        return ""

    def version(self) -> str:
        """Return the distribution's."""
        return version("nats-logship")

    def stage(self, folder: Path, processes: Processes, address: str = LOOPBACK) -> "StagedLogship":
        """Start broker and receiver; it is warm once it has a line of each partition."""
        suite = Suite(folder, processes, self.partitions, f"nats://{address}:{free_port()}")
        anybody = () if address == LOOPBACK else ("--allow-anonymous",)  # the way is nobody else's
        broker = suite.start_broker("--streams", str(self.streams), *anybody, under=self.under)
        receiver = suite.start_receiver(range(self.partitions), *_ONE_FILE)
        suite.wait_for_receiver(receiver, range(self.partitions))
        staged = StagedLogship(suite, suite.output, {"broker": broker, "receiver": receiver})
        last = {
            number: suite.publish(_WARM_UP.format(number), b"one line\n")
            for number in range(self.partitions)
        }

        def is_warm() -> bool:
            offsets = {number: suite.offset(number) for number in last}
            return all(one and one.next > last[number] for number, one in offsets.items())

        wait_until("a line of each partition is committed", is_warm, 120, [receiver])
        quiet_after(receiver, _QUIET, _TASK)
        return staged


@dataclass(frozen=True, slots=True)
class StagedLogship:
    """Broker and receiver; `suite` for what only they can do."""

    suite: Suite
    output: Path
    centre: Mapping[str, Process]

    def start_agent(self, host: str, logs: Path) -> Process:
        """Start a shipper."""
        return self.suite.start_shipper(host, [logs / "*.log"])

    def is_committed(self) -> bool:
        """Whether the receiver of the stream's last message has committed it."""
        offsets = map(self.suite.offset, range(self.suite.partitions))
        last = self.suite.last_sequence()
        return any(offset is not None and offset.next > last for offset in offsets)
