"""Random programs of events around a receiver, against a model of its files.

Whole tasks run without Spark on a real broker. They die at named points and at any call that
changes a file; at these points others change files, offset, stream and broker. No file is truncated
unless its lines do not come again, as readers would begin again. The model is
`tests/receiver/model.py`. A death within this process is an exception that nothing catches; the
connection stays as it was, as in a worker that is used again.
"""

import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.app.faults import VARIABLE
from nats_logship.client import bucket
from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from receiver.consume import task
from receiver.consume.assignment import (
    LARGEST_PULL,
    Assignment,
    Blocked,
    Cause,
    ForcedRotation,
    Report,
    SessionLimits,
    Superseded,
)
from receiver.consume.claim import Claim
from receiver.offsets_cli import carry_out, propose
from receiver.storage.layout import Layout
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.segments import Limits, SegmentCleaner, SegmentPolicy
from tests.conftest import start_server
from tests.receiver.faulty_disk import Died, FaultyDisk, Trouble, recorded_cuts
from tests.receiver.model import Model, Sent
from tests.receiver.partition import Partition
from tests.receiver.points import IN_BATCH, IN_REPAIR, IN_ROTATION, IN_UNDO
from tests.receiver.senders import HOSTS, Broker, Senders
from tests.shipper.programs import Step, as_many_as, programs
from tests.support.processes import Processes

pytestmark = [pytest.mark.nats, pytest.mark.timeout(36000)]

LONG = [SessionLimits(60.0), SessionLimits(60.0, 0.05, commit_every=0.02)]
SENDING = {"publish": 12, "publish_bad": 1, "leave_a_gap": 2, "repeat": 2, "tear": 2}
RECEIVING = {
    "receive": 8,
    "die_at_a_point": 8,
    "die_at_a_call": 8,
    "have_disk_trouble": 4,
    "be_disturbed": 10,
    "rotate": 3,
    "start_anew": 3,
    "tidy": 3,
    "set_offset": 2,
    "purge": 1,
    "restart_broker": 1,
}
POINTS_IN_TASK = (*IN_BATCH, *IN_UNDO, *IN_REPAIR)
POINTS_IN_ROTATION = ("closed", "rotated", *IN_ROTATION)
MOST_ATTEMPTS = 12
NOW = datetime(2030, 1, 1, tzinfo=UTC)  # later than any line: where to go on is given by sequence


class Program:
    """A receiver of two partitions, and the steps that happen to it, which it logs."""

    def __init__(self, broker: Broker, folder: Path, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        self.model = Model(folder)
        self.output, self.state = self.model.output, folder / "state"
        self.senders = Senders(broker, self.model, chance)
        self.rotate_size = chance.choice([0, 150, 400, 2000])
        self.layout = Layout(chance.choice(["{host}.log", "{host}.log", "{host}/{file}"]))
        url, template = broker.server.url, str(self.layout.template)
        here = Partition(url, folder, rotate_size=self.rotate_size, template=template)
        self.destination = here.destination
        self.epochs = {0: 0, 1: 0}
        self.first = {0: 1, 1: 1}
        self.clean = {0: True, 1: True}
        self.cuts: list[str] = []
        self.comes_again = {0: True, 1: True}  # what is not committed of a partition
        self.log: list[str] = []

    def claim(self, partition: int) -> None:
        """Have a new owner claim the partition."""
        folders = PartitionFolders(self.output, self.state, partition, str(self.layout.template))
        self.sync(partition)
        offset = self.broker.ask(
            lambda c: Claim(c, partition, "model:1", "LOGS", folders).claim(NOW)
        )
        assert offset is not None
        self.note(f"p{partition} claimed at {offset.next} epoch {offset.epoch}")
        self.model.next[partition] = self.first[partition] = offset.next
        self.epochs[partition] = offset.epoch

    def session(
        self,
        partition: int,
        disk: FaultyDisk | None = None,
        *,
        long: bool = False,
        rotation: ForcedRotation = ForcedRotation.NONE,
    ) -> bool:
        """Have a task run a session at the partition; return whether it found nothing more."""
        epoch = self.epochs[partition]
        limit = self.chance.choice([1, 300, 10**6])
        pull = self.chance.choice([1, 1000, LARGEST_PULL])
        session = self.chance.choice(LONG) if long else SessionLimits()
        first = self.first[partition]
        assignment = Assignment(partition, first, epoch, limit, rotation, pull, session)
        self.clean[partition] = False
        try:
            with disk.plugged_in() if disk else nullcontext():
                report = task.run_session(assignment, self.destination)
        except Died:
            self.note("died")
            self.sync(partition)
            return False
        finally:
            self.note_cuts(partition)
        self.note(f"p{partition} {report}")
        self.sync(partition)
        return self.take_report(partition, epoch, report)

    def take_report(self, partition: int, epoch: int, report: Report) -> bool:
        is_owner = self.epochs[partition] == epoch  # else that was another driver
        if is_owner:
            self.first[partition] = max(self.first[partition], report.done.until)
        match report.outcome:
            case Superseded() | Blocked(Cause.STATE) if is_owner:
                self.claim(partition)
            case Superseded() | Blocked():
                pass
            case _:
                # a slow broker's first message may come after the silence
                is_over = report.batches == 0 and not self.waits(partition)
                # while messages wait, files may have lines of these from a task that has ended
                is_level = report.done.pending == 0 and (report.batches > 0 or is_over)
                self.clean[partition] = is_owner and is_level
                self.comes_again[partition] |= is_over
                return is_over
        return False

    def waits(self, partition: int) -> bool:
        """Whether a message of a partition is not committed yet."""
        begin = self.model.next[partition]
        later = (some for sequence, some in self.model.sent.items() if sequence >= begin)
        return any(one.partition == partition for some in later for one in some)

    def note_cuts(self, partition: int) -> None:
        """Log which files were truncated: none whose lines come again."""
        for cut in self.cuts:
            self.note(f"cut {cut}")
        assert not (self.cuts and self.comes_again[partition])
        self.cuts.clear()

    # what is known

    def sync(self, partition: int) -> None:
        """Take in how far the offset has moved."""
        key = offset_key(partition)
        entry = self.broker.ask(lambda c: bucket.read(c, OFFSETS_BUCKET, key))
        if entry and entry.value:
            self.model.commit(partition, Offset.decode(entry.value).next, self.live)

    def live(self, sent: Sent) -> str:
        return self.layout.path(sent.host, sent.file or None)

    def note(self, text: str) -> None:
        self.log.append(f"    {text}")

    def check(self) -> None:
        is_clean = all(self.clean.values())
        for live, expected in self.model.files.items():
            content = self.model.content(live)
            assert content == expected if is_clean else content.startswith(expected), live

    def run(self, steps: list[Step]) -> None:
        self.broker.make_anew()
        for partition in HOSTS:
            self.claim(partition)
        for action, amount in steps:
            self.log.append(f"{action} {amount}")
            act = getattr(self.senders if action in SENDING else self, action)
            act(amount)
            self.check()
        self.drain()

    def start_anew(self, amount: int) -> None:
        self.claim(amount % 2)

    def set_offset(self, amount: int) -> None:
        partition = amount % 2
        self.sync(partition)

        async def put(connection: Connection) -> int:
            first, until = await _reach(connection)
            to = self.chance.randint(max(first, 1), max(until, 1))
            await carry_out(connection, await propose(connection, STREAM, partition, str(to), NOW))
            return to

        to = self.broker.ask(put)
        self.note(f"p{partition} set to {to}")
        self.model.next[partition] = to
        self.comes_again[partition] = False
        if amount > 1:
            self.claim(partition)

    # what happens to the stream

    def purge(self, _: int) -> None:
        first, until = self.broker.ask(_reach)
        sequence = self.chance.randint(first, max(until, first))
        self.broker.ask(lambda c: c.api(f"STREAM.PURGE.{STREAM}", {"seq": sequence}))
        self.model.purge(sequence)
        self.comes_again = {0: False, 1: False}

    def restart_broker(self, amount: int) -> None:
        if amount == 0:
            self.broker.server.kill_and_restart()

    def tidy(self, amount: int) -> None:
        for partition in HOSTS:
            self.sync(partition)
        compress = ("none", "zstd", "gzip")[amount % 3]
        policy = SegmentPolicy(self.output, self.state, compress, Limits(number=amount))
        before = {live: self.model.segments(live) for live in self.model.files}
        SegmentCleaner(policy, lambda: 0).clean(lambda: False)
        for live, segments in before.items():
            self.model.removed(live, segments)

    # receiving

    def receive(self, amount: int) -> None:
        self.session(amount % 2, long=amount > 1)

    def rotate(self, amount: int) -> None:
        self.session(amount % 2, rotation=ForcedRotation.ALL)

    def die_at_a_point(self, amount: int) -> None:
        is_rotation = self.chance.random() < 0.15
        rotation = ForcedRotation.ALL if is_rotation else ForcedRotation.NONE
        point = self.chance.choice(POINTS_IN_ROTATION if is_rotation else POINTS_IN_TASK)
        self.note(f"at {point}")
        disk = FaultyDisk(Trouble.DEATH)

        def die() -> None:
            disk.at = 0
            raise Died

        with at(point, self.model.path, self.chance.randint(0, 3), die):
            self.session(amount % 2, disk, long=amount > 1, rotation=rotation)
        self.wake_up(amount % 2)

    def die_at_a_call(self, amount: int) -> None:
        self.fail_at_a_call(amount, Trouble.DEATH)
        self.wake_up(amount % 2)

    def wake_up(self, partition: int) -> None:
        """Go on, or claim the partition first."""
        if self.chance.random() < 0.3:
            self.claim(partition)

    def have_disk_trouble(self, amount: int) -> None:
        troubles = [Trouble.ONCE, Trouble.FULL, Trouble.READ_ONLY]
        self.fail_at_a_call(amount, self.chance.choice(troubles))

    def fail_at_a_call(self, amount: int, trouble: Trouble) -> None:
        disk = FaultyDisk(trouble, self.chance.randint(1, 80))
        self.session(amount % 2, disk, long=amount > 1)

    def be_disturbed(self, amount: int) -> None:
        partition = amount % 2
        zombies: list[threading.Thread] = []

        def another() -> None:
            attempt = threading.Thread(target=self.session, args=(partition,))
            attempt.start()
            zombies.append(attempt)

        events: list[Callable[[], object]] = [
            lambda: self.senders.publish(1),
            lambda: self.claim(partition),
            lambda: self.set_offset(partition + 2 * self.chance.randint(0, 1)),
            lambda: self.tidy(self.chance.randint(0, 4)),
            lambda: self.restart_broker(self.chance.randint(0, 3)),
            lambda: setattr(self.broker.flaky, "breaks", "stored"),
            lambda: setattr(self.broker.flaky, "breaks", "not stored"),
            another,
        ]
        event = self.chance.choice(events)
        point = self.chance.choice(POINTS_IN_TASK)
        self.note(f"at {point}")

        def happen() -> None:
            thread = threading.Thread(target=event)  # this thread may run a loop
            thread.start()
            thread.join()

        with at(point, self.model.path, self.chance.randint(0, 3), happen):
            self.session(partition, long=amount > 1)
        for zombie in zombies:
            zombie.join()
        self.broker.flaky.breaks = None

    def drain(self) -> None:
        self.log.append("drain")
        for partition in HOSTS:
            attempts = 0
            while not (self.session(partition, long=True) and self.clean[partition]):
                attempts += 1
                assert attempts < MOST_ATTEMPTS, "it never comes to its end"
        self.check()
        assert self.model.read_gaps() == self.model.gaps
        assert self.model.quarantined() >= self.model.bad


async def _reach(connection: Connection) -> tuple[int, int]:
    state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
    return int(state["first_seq"]), int(state["last_seq"]) + 1


@contextmanager
def at(point: str, folder: Path, passes: int, act: Callable[[], None]) -> Iterator[None]:
    """Have something happen when a task comes to a named point, having passed it so often."""
    trigger, kill = folder / "faults" / point, os.kill
    trigger.parent.mkdir(parents=True, exist_ok=True)
    trigger.write_bytes(b"." * passes)
    os.environ[VARIABLE] = str(trigger.parent)
    os.kill = lambda pid, number: act() if pid == os.getpid() else kill(pid, number)
    try:
        yield
    finally:
        os.kill = kill
        del os.environ[VARIABLE]
        trigger.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("model-server")
    with Processes(folder) as processes, closing(Broker(start_server(processes, folder))) as broker:
        yield broker


@as_many_as(12)
@given(seed=st.integers(0, 2**32), steps=programs(SENDING | RECEIVING))
def test_committed_lines_are_in_files_once(broker: Broker, seed: int, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(broker, Path(folder), random.Random(seed))
        try:
            with recorded_cuts(program.cuts):
                program.run(steps)
        except BaseException as error:
            error.add_note("\n".join(program.log))
            raise
