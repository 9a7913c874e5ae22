"""Measure what receiving lines of many hosts costs: the messages are in the stream beforehand.

The receiver is stopped meanwhile, since the broker brings each message to disk and small ones would
come as slowly as it syncs.
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

_LOOK = 0.05


def arrive(
    folder: Path, partitions: int, size: int, messages: Callable[[], Iterator[Sent]]
) -> Outcome:
    """Store `size` bytes of lines; have a receiver of all partitions read them, in an empty folder.

    Raises TookTooLong and ProgramDied.
    """
    expected = Expected()
    with Processes(folder) as processes:
        staged = Logship(partitions=partitions).stage(folder, processes)
        before = received_in_all(staged.output)
        with staged.centre["receiver"].stopped():
            batches = on_the_wire(expected.note(messages()), partitions)
            store(int(staged.suite.url.rpartition(":")[2]), batches)
            charge = Charge(staged.centre, size)
        whole = before + expected.size
        wait_until(
            "all is received",
            lambda: received_in_all(staged.output) >= whole,
            120 + expected.size / 2e6,
            charge.programs,
            _LOOK,
        )
        wait_until("it is committed", staged.is_committed, 60, charge.programs, _LOOK)
        seconds, cpu, peak = charge.seconds, charge.per_gb(expected.size), charge.peak()
    figures = {
        "MB/s": expected.size / 1e6 / seconds,
        **cpu,
        "peak RSS MiB": peak / 2**20,
    }
    return Outcome(figures, expected.judge(staged.output, messages()))
