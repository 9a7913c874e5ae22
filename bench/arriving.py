"""What it costs the centre when lines of many hosts come as fast as the broker stores them: what agents would have sent is prepared.

It waits in memory as it goes over the line, so that while the clock runs nothing is made and nobody is charged for it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from bench.charge import Charge
from bench.expected import Expected
from bench.field.logship import Logship
from bench.fill import Sent, on_the_wire, store
from bench.trial import Outcome
from tests.support.processes import Processes, wait_until
from tests.support.received import received_in_all

_GB = 1e9
_LOOK = 0.05


def arrive(
    folder: Path, partitions: int, size: int, messages: Callable[[], Iterator[Sent]]
) -> Outcome:
    """Fill the stream with `size` bytes of lines while a receiver of all partitions follows, in an empty folder.

    Raises TookTooLong and ProgramDied.
    """
    expected = Expected()
    with Processes(folder) as processes:
        staged = Logship(partitions=partitions).stage(folder, processes)
        before = received_in_all(staged.output)
        batches = list(on_the_wire(expected.note(messages()), partitions))
        charge = Charge(staged.centre, size)
        store(int(staged.suite.url.rpartition(":")[2]), batches)
        whole = before + expected.size
        wait_until(
            "all is received",
            lambda: received_in_all(staged.output) >= whole,
            120 + expected.size / 2e6,
            charge.programs,
            _LOOK,
        )
        wait_until("it is committed", staged.is_committed, 60, charge.programs, _LOOK)
        seconds, cpu, peak = charge.seconds, charge.cpu(), charge.peak()
    per_gb = {f"CPU s/GB {name}": used / (expected.size / _GB) for name, used in cpu.items()}
    figures = {
        "MB/s": expected.size / 1e6 / seconds,
        "CPU s/GB": sum(per_gb.values()),
        **per_gb,
        "peak RSS MiB": peak / 2**20,
    }
    return Outcome(figures, expected.judge(staged.output, messages()))
