"""A partition for tests: publish into it, run its tasks, move its offset, read its files."""

import json
import os
import pickle
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import zstandard

from nats_logship.app.faults import VARIABLE
from nats_logship.client import bucket
from nats_logship.client.access import Access
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Identity, Origin, Section, Span, encode_origin
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET, STREAM, offset_key, stream_of
from receiver.consume import task
from receiver.consume.assignment import (
    LARGEST_PULL,
    Assignment,
    Blocked,
    Cause,
    Destination,
    Done,
    Ending,
    ForcedRotation,
    Report,
    SessionLimits,
    Superseded,
)
from receiver.consume.claim import Claim
from receiver.storage.anomalies import name_gap_report
from receiver.storage.layout import Permissions
from receiver.storage.partition_folders import PartitionFolders
from tests.support.forks import Fork
from tests.support.processes import stat_of, wait_until
from tests.support.received import read_received
from tests.support.suite import ask

Answer = TypeVar("Answer")
Message = tuple[str, bytes, dict[str, str] | None]
"""Subject, payload, headers."""

LIMIT = 64_000_000
ONE_BATCH = SessionLimits()
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
_RUN = """
import pickle, sys
from receiver.consume import task
assignment, destination = pickle.loads(bytes.fromhex(sys.argv[1]))
print(task.run_session(assignment, destination))
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition on a real broker, and the folders of its receiver."""

    url: str
    folder: Path
    number: int = 0
    rotate_size: int = 0
    limit: int = LIMIT
    rotate_every: timedelta = timedelta()
    template: str = "{host}.log"
    partitions: int = 0
    pull: int = LARGEST_PULL
    access: Access = Access()  # noqa: RUF009 - a frozen value
    permissions: Permissions = Permissions()  # noqa: RUF009 - a frozen value
    streams: int = 1

    @property
    def stream(self) -> str:
        return stream_of(self.number, self.streams)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def live(self) -> Path:
        return self.output / "web01.log"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def store(self) -> Path:
        return self.state / f"p{self.number}.db"

    def sql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the store, as an operator may, or change it."""
        with closing(sqlite3.connect(self.store)) as store, store:
            return store.execute(query, values).fetchall()

    def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        return ask(self.url, question)

    def publish(self, *messages: Message) -> int:
        """Store messages one by one; return the last sequence."""
        return publish(self.url, *messages)

    def lines(self, host: str, *payloads: bytes) -> int:
        return self.publish(*((f"logs.p{self.number}.{host}", data, None) for data in payloads))

    def claim(self, first: int = 1, epoch: int = 1) -> None:
        self.move(first, epoch)

    def take_over(self, owner: str = "host:1") -> Offset:
        """Claim as the driver of a receiver does that starts."""
        folders = PartitionFolders(self.output, self.state, self.number, self.template)
        offset = self.ask(lambda c: Claim(c, self.number, owner, self.stream, folders).claim(NOW))
        assert offset
        return offset

    def start(self) -> Done:
        """Claim as a receiver that starts, and have one batch received."""
        offset = self.take_over()
        done = self.run(offset.next, offset.epoch)
        assert isinstance(done, Done), done
        return done

    def make_stream_anew(self) -> None:
        """Have another stream of that name, which is empty."""
        config = api(self.url, f"STREAM.INFO.{STREAM}")["config"]
        api(self.url, f"STREAM.DELETE.{STREAM}")
        api(self.url, f"STREAM.CREATE.{STREAM}", config)

    def move(self, first: int, epoch: int = 1, owner: str = "test:1", last_time: str = "") -> None:
        """Write the offset, whatever it was; its commit is one that the store knows."""
        known = ("",)
        if self.store.exists():
            known = self.sql("SELECT commit_id, previous_id FROM batch")[0]

        async def store(connection: Connection) -> None:
            created = (await connection.api(f"STREAM.INFO.{self.stream}"))["created"]
            at = connection, OFFSETS_BUCKET, offset_key(self.number)
            entry = await bucket.read(*at)
            before = Offset.decode(entry.value).commit if entry else ""
            commit = before if before in known else known[0]
            offset = Offset(first, epoch, created, owner, last_time=last_time, commit=commit)
            value = replace(offset, stream=self.stream).encode()
            await bucket.write(*at, value, entry.revision if entry else 0)

        self.ask(store)

    def assignment(
        self, first: int = 1, epoch: int = 1, session: SessionLimits = ONE_BATCH
    ) -> Assignment:
        return Assignment(self.number, first, epoch, self.limit, pull=self.pull, session=session)

    def offset(self) -> Offset:
        """Return what KV says."""
        key = offset_key(self.number)
        entry = self.ask(lambda connection: bucket.read(connection, OFFSETS_BUCKET, key))
        assert entry is not None
        return Offset.decode(entry.value)

    @property
    def destination(self) -> Destination:
        return Destination(
            self.output,
            self.state,
            self.rotate_size,
            (self.url,),
            self.rotate_every,
            path_template=self.template,
            partitions=self.partitions,
            access=self.access,
            permissions=self.permissions,
            streams=self.streams,
        )

    def run(
        self, first: int = 1, epoch: int = 1, rotation: ForcedRotation = ForcedRotation.NONE
    ) -> Done | Blocked | Superseded:
        """Have one batch received; return what was committed, or why nothing was."""
        assignment = replace(self.assignment(first, epoch), rotation=rotation)
        report = task.run_session(assignment, self.destination)
        return report.done if isinstance(report.outcome, Ending) else report.outcome

    def session(self, session: SessionLimits, first: int = 1, epoch: int = 1) -> Report:
        return task.run_session(self.assignment(first, epoch, session), self.destination)

    @contextmanager
    def long_session(
        self,
        first: int = 1,
        commit_every: float = 0.0,
        destination: Destination | None = None,
        epoch: int = 1,
    ) -> Iterator[Future[Report]]:
        """Run a session in a thread; ask it to leave at the end, and yield its report."""
        session = SessionLimits(60, 60, commit_every=commit_every)
        assignment = replace(self.assignment(first, epoch, session), leave=f"leave.{epoch}")
        with ThreadPoolExecutor(1) as thread:
            yield thread.submit(task.run_session, assignment, destination or self.destination)
            self.ask(lambda connection: connection.publish(f"leave.{epoch}"))

    def wait_until_committed(self, next_: int) -> None:
        wait_until(f"{next_} is committed", lambda: self.offset().next == next_, 30)

    def receive(self, first: int = 1, epoch: int = 1) -> Done:
        """Run batches until nothing is left; return them as one."""
        whole = Done(self.number, first, first)
        while True:
            done = self.run(whole.until, epoch)
            assert isinstance(done, Done), done
            if done.until == done.first:
                return whole
            whole = whole.then(done)

    def take_over_and_receive(self) -> None:
        """Have the next task receive the rest, in a new epoch."""
        reached = self.offset().next
        self.move(reached, epoch=2)
        self.receive(reached, epoch=2)

    def run_apart(
        self, first: int = 1, epoch: int = 1, fault: str = "", passes: int = 0, **changes: object
    ) -> int:
        """Run a batch in another process, which dies at a fault point; `changes` its assignment."""
        assignment = replace(self.assignment(first, epoch), **changes)  # type: ignore[arg-type]
        return self._fork(assignment, self._environment(fault, passes)).wait(180)

    @contextmanager
    def stopped_at(self, point: str, first: int, epoch: int) -> Iterator[Callable[[], str]]:
        """Run a batch in a process that stops at a fault point; yield what resumes it."""
        environment = self._environment(f"{point}.stop", 0)
        fork = self._fork(self.assignment(first, epoch), environment)

        def go_on() -> str:
            fork.send_signal(signal.SIGCONT)
            assert fork.wait(60) == 0
            return self._report.read_text()

        try:
            wait_until("it comes there", lambda: stat_of(fork.pid)[:1] == ["T"], 60)
            yield go_on
        finally:
            fork.send_signal(signal.SIGKILL)

    @property
    def _report(self) -> Path:
        return self.folder / "report"

    def _environment(self, fault: str, passes: int) -> dict[str, str]:
        if not fault:
            return dict(os.environ)
        faults = self.folder / "faults"
        faults.mkdir(parents=True, exist_ok=True)
        (faults / fault).write_bytes(b"." * passes)
        return {**os.environ, VARIABLE: str(faults)}

    def _fork(self, assignment: Assignment, environment: dict[str, str]) -> Fork:
        arguments = (_RUN, pickle.dumps((assignment, self.destination)).hex())
        with self._report.open("wb") as report:
            return Fork("receiver", *arguments, env=environment, stdout=report)

    def with_folder(self, folder: Path) -> "Partition":
        folder.mkdir(exist_ok=True)
        return replace(self, folder=folder)

    def read(self, live: str) -> bytes:
        """Return a host's closed segments in order, decompressed, and its live file."""
        return read_received(self.output, live) if self.output.exists() else b""

    def read_gaps(self) -> list[dict[str, Any]]:
        """Return the report of gaps; a run appends the gaps of committed batches."""
        path = self.output / name_gap_report(self.number)
        return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []

    def set_aside(self) -> list[tuple[dict[str, Any], bytes]]:
        """Return the messages in quarantine, in order: what is known of each, and its payload."""
        found = []
        for path in sorted((self.output / ".quarantine").glob("*.msg")):
            data, begin = path.read_bytes(), 0
            while begin < len(data):
                payload = data.index(b"\n", begin) + 1
                about = json.loads(data[begin:payload])
                begin = payload + about["bytes"] + 1
                found.append((about, data[payload : begin - 1]))
        return found

    def files(self) -> dict[str, bytes]:
        """Return all files below the output folder, by path, but for what is hidden."""
        paths = ((path, path.relative_to(self.output)) for path in self.output.rglob("*"))
        return {
            str(name): path.read_bytes()
            for path, name in sorted(paths)
            if path.is_file() and not path.is_symlink() and not name.parts[0].startswith(".")
        }


def api(url: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Call the JetStream API of a server and return its answer."""
    return ask(url, lambda connection: connection.api(name, body))


def publish(url: str, *messages: Message) -> int:
    """Store messages one by one, acknowledged; return the last sequence."""

    async def store(connection: Connection) -> int:
        sequence = 0
        for message in messages:
            sequence = int((await connection.ask(*message))["seq"])
        return sequence

    return ask(url, store)


def lines_of(
    file: str, start: int, payload: bytes, *, end: int | None = None, filtered: bool = False
) -> tuple[Section, bytes]:
    """Return a section with lines of a file below /var/log, and the lines."""
    span = Span(file, start, start + len(payload) if end is None else end)
    identity = Identity(1, 0, "", 0, "")
    count = payload.count(b"\n")
    section = Section(f"/var/log/{file}", span, len(payload), count, identity, filtered)
    return section, payload


def message(
    host: str, *parts: tuple[Section, bytes], compressed: bool = False
) -> tuple[str, bytes, dict[str, str]]:
    """Return a shipper's message in partition 0 with lines of several files."""
    origin = Origin("1-00000001", 1_000, tuple(section for section, _ in parts), compressed)
    payload = b"".join(lines for _, lines in parts)
    data = zstandard.compress(payload) if compressed else payload
    return f"logs.p0.{host}", data, encode_origin(origin)


def ours(
    host: str, file: str, start: int, payload: bytes, *, end: int | None = None, **changes: bool
) -> tuple[str, bytes, dict[str, str]]:
    """Return a message of partition 0 with lines of one file."""
    compressed = changes.pop("compressed", False)
    return message(host, lines_of(file, start, payload, end=end, **changes), compressed=compressed)


def blocked(outcome: object, cause: Cause, *parts: str) -> None:
    """Assert that an outcome has a cause, and a detail in one line with these parts."""
    assert isinstance(outcome, Blocked), outcome
    assert outcome.cause is cause
    assert "\n" not in outcome.detail
    assert all(part in outcome.detail for part in parts), outcome.detail
