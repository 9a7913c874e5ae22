"""A receiver of two partitions and its operator in a model test: what a driver does around tasks, and what it is told to do."""

import random
import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from receiver.consume import task
from receiver.consume.assignment import (
    LARGEST_PULL,
    Assignment,
    Blocked,
    Cause,
    Destination,
    ForcedRotation,
    Report,
    SessionLimits,
    Superseded,
)
from receiver.consume.claim import Claim
from receiver.consume.stream_state import StreamMismatch
from receiver.offsets_cli import carry_out, propose
from receiver.storage.layout import Layout
from receiver.storage.site import Site, adopt
from receiver.storage.store import Damaged, Store
from tests.receiver.faulty_disk import Died, FaultyDisk
from tests.receiver.model import Folder, Model, Sent
from tests.receiver.senders import HOSTS, Broker, Senders

NOW = datetime(2030, 1, 1, tzinfo=UTC)  # later than any line: where to go on is given by sequence


class Tended:
    """The receiver as somebody tends it; `folder` is where it writes now, `log` what has happened."""

    def __init__(self, broker: Broker, folder: Path, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        self.folders = [Folder(folder / "0"), Folder(folder / "1")]
        self.folder = self.folders[0]
        self.model = Model()
        self.senders = Senders(broker, self.model, chance)
        self.rotate_size = chance.choice([0, 150, 400, 2000])
        self.layout = Layout(chance.choice(["{host}.log", "{host}.log", "{host}/{file}"]))
        self.epochs = {0: 0, 1: 0}
        self.first = {0: 1, 1: 1}
        self.clean = {0: True, 1: True}
        self.doubtful: set[int] = set()  # partitions whose files a person may have to adopt
        self.is_renewed = False
        self.log: list[str] = []

    def claim(self, partition: int) -> None:
        """Have a new owner claim the partition, and do what it says first should it refuse."""
        site = self.site(partition)

        async def claim(connection: Connection) -> Offset:
            ledger = Claim(connection, partition, "model:1", "LOGS", site)
            offset = await ledger.claim(NOW)
            assert offset is not None
            return offset

        self.sync(partition)
        for _ in range(4):
            try:
                offset = self.broker.ask(claim)
                break
            except StreamMismatch:
                self.put_offset(partition, "earliest")
            except Damaged as error:
                self.note(f"mismatch {error}")
                if found := re.search(r"--to ([0-9]+)`", str(error)):
                    self.put_offset(partition, found[1])
                else:
                    self.adopt(partition)
        else:
            pytest.fail("cannot be claimed")
        self.note(f"p{partition} claimed at {offset.next} epoch {offset.epoch}")
        self.model.next[partition] = self.first[partition] = offset.next
        self.epochs[partition] = offset.epoch

    def site(self, partition: int) -> Site:
        template = str(self.layout.template)
        return Site(self.folder.output, self.folder.path / "state", partition, template)

    def adopt(self, partition: int) -> None:
        """Take the files as they are: what an unfinished batch has left there counts from now on."""
        assert partition in self.doubtful, (
            "nobody but a person or a death elsewhere may make this necessary"
        )
        entry = self.broker.ask(
            lambda connection: bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
        )
        assert entry
        with Store(self.site(partition).path) as store:
            last = store.batch()
        if last and last.first != last.until != self.folder.committed.get(partition):
            self.model.next[partition] = last.first
            self.commit(partition, last.until)
        adopt(self.site(partition), Offset.decode(entry.value))
        for live in self.folder.files:
            if any(live.startswith((f"{host}.log", f"{host}/")) for host in HOSTS[partition]):
                self.folder.adopted(live)

    def put_offset(self, partition: int, to: str) -> None:
        async def put(connection: Connection) -> None:
            now = NOW
            move = await propose(connection, STREAM, partition, to, now)
            await carry_out(connection, move)

        self.broker.ask(put)

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
        assignment = Assignment(
            *(
                partition,
                self.first[partition],
                epoch,
                self.chance.choice([1, 300, 10**6]),
                rotation,
                self.chance.choice([1, 1000, LARGEST_PULL]),
            ),
            session=SessionLimits(60.0) if long else SessionLimits(),
        )
        self.clean[partition] = False
        try:
            with disk.plugged_in() if disk else nullcontext():
                report = task.run(assignment, self.destination)
        except Died:
            self.note("died")
            self.sync(partition)
            return False
        self.note(f"p{partition} {report}")
        self.sync(partition)
        return self.heard(partition, epoch, report)

    def heard(self, partition: int, epoch: int, report: Report) -> bool:
        if self.epochs[partition] == epoch:  # else that was another driver
            self.first[partition] = max(self.first[partition], report.done.until)
        match report.ended:
            case Superseded() if self.epochs[partition] == epoch:
                self.claim(partition)
            case Blocked(Cause.STATE) if self.epochs[partition] == epoch:
                self.claim(partition)
            case Superseded() | Blocked():
                pass
            case _:
                self.clean[partition] = self.epochs[partition] == epoch
                if self.clean[partition]:
                    self.doubtful.discard(partition)
                return report.batches == 0
        return False

    @property
    def destination(self) -> Destination:
        return replace(
            Destination(
                self.folder.output,
                self.folder.path / "state",
                self.rotate_size,
                (self.broker.server.url,),
            ),
            path_template=str(self.layout.template),
        )

    def move_away(self, live: str) -> None:
        self.folder.cut(live, self.folder.closed_size(live))
        (self.folder.output / live).unlink()
        self.note(f"{live} removed")

    # what is known

    def sync(self, partition: int) -> None:
        """Take in how far the offset has moved."""
        entry = self.broker.ask(
            lambda connection: bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
        )
        if entry and entry.value:
            self.commit(partition, Offset.decode(entry.value).next)

    def sync_all(self) -> None:
        for partition in HOSTS:
            self.sync(partition)

    def commit(self, partition: int, until: int) -> None:
        self.model.commit(partition, until, self.folder, self.live)

    def live(self, sent: Sent) -> str:
        return self.layout.path(sent.host, sent.file or None)

    def note(self, words: str) -> None:
        self.log.append(f"    {words}")

    def check(self) -> None:
        for live, expected in self.folder.files.items():
            content = self.folder.content(live)
            is_clean = all(self.clean.values())
            assert content == expected if is_clean else content.startswith(expected), live
            self.folder.check_cuts(live)
