"""Whatever a host claims about a move of its lines, the lines of others are received."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nats_logship.client.answer import Denied, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import StreamReader, at_sequence
from nats_logship.wire.delivery import Delivery
from nats_logship.wire.message import Followed, Origin, encode_origin
from nats_logship.wire.streams import StreamLayout
from nats_logship.wire.subjects import count_name, partition_filter
from receiver.consume.assignment import Blocked, Cause, Done, Report, SessionLimits
from receiver.consume.host_claims import HostClaim, read_follows
from receiver.consume.host_moves import MovesExaminer, Patience
from tests import secured
from tests.receiver.partition import Message, Partition, blocked, lines_of, message
from tests.receiver.supervised import Supervised
from tests.support.processes import Processes
from tests.support.suite import ask

pytestmark = pytest.mark.nats

EVIL, HONEST = "evil", "web02"  # of two partitions the second is theirs
MANY = 2_000


class Pair:
    """Two partitions, each with a receiver that has rights to its own only."""

    def __init__(self, processes: Processes, folder: Path, streams: int) -> None:
        receivers = (secured.receiver("r0", 0), secured.receiver("r1", 1))
        self.server = secured.start_secured(processes, folder, *receivers, streams=streams)
        self.anybody = [
            Partition(self.server.url(), folder, number, partitions=2, streams=streams)
            for number in range(2)
        ]
        for one in self.anybody:
            one.claim()
        self.old, self.new = (
            replace(one, url=self.server.address, access=self.server.access(f"r{one.number}"))
            for one in self.anybody
        )

    def publish(self, *messages: Message) -> int:
        return self.anybody[0].publish(*messages)


@pytest.fixture(params=[1, 2], ids=["one stream", "two streams"])
def pair(processes: Processes, tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    return Pair(processes, tmp_path, request.param)


def line(partition: int, host: str, text: bytes = b"line\n") -> Message:
    return f"logs.p{partition}.{host}", text, None


def shipped(partition: int, start: int, text: bytes) -> Message:
    """Return a line of a file of the host, as its shipper sends it."""
    _, payload, headers = message(EVIL, lines_of("app.log", start, text))
    return f"logs.p{partition}.{EVIL}", payload, headers


def claim(
    partition: int, *ends: tuple[int, int], moved: int | None = None, host: str = EVIL
) -> Message:
    """Return a claim that follows the partitions and sequences of `ends`."""
    followed = tuple(Followed(*end) for end in ends)
    origin = Origin("1-00000001", 1_000, follows=followed, moved=moved)
    return f"logs.p{partition}.{host}", b"", encode_origin(origin)


async def publish_all(connection: Connection, messages: Sequence[Message]) -> int:
    """Publish messages at once, then a line of another host; return its sequence."""
    for subject, data, headers in messages:
        await connection.publish(subject, data, headers=headers)
    stored = await connection.ask(f"logs.p1.{HONEST}", b"after all\n", None, 60)
    return int(stored["seq"])


def count_batches(partition: Partition, messages: Sequence[Message]) -> int:
    """Publish messages and a line of another host; return in how many batches it comes."""
    partition.ask(lambda connection: publish_all(connection, messages))
    batches, first = 0, 1
    while b"after all\n" not in partition.read(HONEST):
        report: Report = partition.session(SessionLimits(60.0, 2.0, 0.01), first)
        batches, first = batches + report.batches, report.done.until
        assert report.batches, report
    return batches


@pytest.mark.parametrize("forged", [0, 1, "the last one below the claim", 10**9, 2**64 - 1])
def test_a_forged_end_in_another_partition_holds_nobody_up(pair: Pair, forged: int | str) -> None:
    pair.publish(line(0, EVIL))
    pair.old.receive()
    last = pair.publish(line(0, HONEST), line(1, HONEST, b"before\n"))
    end = last if isinstance(forged, str) else forged
    pair.publish(claim(1, (0, end)), line(1, HONEST, b"behind\n"), line(0, EVIL))

    pair.new.receive()

    assert pair.new.read(HONEST) == b"before\nbehind\n"
    assert "Violation" not in pair.server.read_log()


def test_later_lines_of_the_old_partition_are_not_waited_for_beyond_clock_skew(
    processes: Processes, tmp_path: Path
) -> None:
    pair = Pair(processes, tmp_path, 2)
    pair.publish(*(claim(number, (1 - number, 10**9)) for number in range(2)))

    async def waits(connection: Connection, number: int, skew: float) -> bool:
        layout, name = StreamLayout(2, 2), f"LOGS_{number}"
        reader = StreamReader(connection, name, "first", (partition_filter(number),))
        await reader.replace(at_sequence(1))
        delivery, message = (await reader.pull(1)).messages[0]
        examiner = MovesExaminer(connection, number, name, layout, Patience(skew, 3600))
        moves = await examiner.examine([HostClaim(EVIL, delivery, read_follows(message))])
        return moves.until is not None

    def has_to_wait(number: int, skew: float) -> bool:
        return pair.anybody[0].ask(lambda connection: waits(connection, number, skew))

    # with clocks that may differ each waits for the other, else only the later one for the earlier
    assert has_to_wait(0, 3600)
    assert has_to_wait(1, 3600)
    assert not has_to_wait(0, 0)
    assert has_to_wait(1, 0)


def test_an_old_partition_without_a_receiver_delays_others_for_a_time(pair: Pair) -> None:
    end = pair.publish(shipped(0, 0, b"older\n"), claim(0, moved=1))
    pair.publish(claim(1, (0, end)), shipped(1, 6, b"newer\n"), line(1, HONEST))

    blocked(pair.new.run(), Cause.MOVED, "partition 0", f"sequence {end}")
    report = pair.new.session(SessionLimits(stalled_after=0.0))

    assert report.done.messages == 3
    assert pair.new.read(HONEST) == b"line\n"
    assert [one for one in report.done.notices if "partition 0 still has older lines" in one]
    pair.old.receive()
    pair.publish(claim(1, (0, end)), shipped(1, 12, b"newest\n"))
    done = pair.new.receive(report.done.until)
    assert not report.done.anomalies + done.anomalies
    assert pair.new.read(EVIL) == b"newer\nnewest\n"
    assert pair.new.read(f"{EVIL}..p0") == b"older\n"


async def test_a_driver_waits_for_an_old_partition_only_while_it_may_be_stalled(
    logs_url: str, tmp_path: Path
) -> None:
    new = Partition(logs_url, tmp_path, 1, partitions=2)
    sent = (shipped(0, 0, b"older\n"), claim(0, moved=1), claim(1, (0, 2)), line(1, HONEST))
    await asyncio.to_thread(new.publish, *sent)

    session = SessionLimits(60.0, 0.3, 0.01, stalled_after=8.0)
    async with Supervised(new, often=True, session=session) as loop:
        await loop.until(lambda: any(isinstance(one.outcome, Blocked) for one in loop.reports))
        await loop.until(lambda: new.read(HONEST) == b"line\n")

    [waited] = {one.outcome.cause for one in loop.reports if isinstance(one.outcome, Blocked)}
    assert waited is Cause.MOVED


async def test_a_host_that_floods_its_old_partition_holds_nobody_up(
    logs_url: str, tmp_path: Path
) -> None:
    old, new = (Partition(logs_url, tmp_path, number, partitions=2) for number in range(2))
    for one in (old, new):
        await asyncio.to_thread(one.claim)
    await asyncio.to_thread(old.lines, EVIL, b"line\n")
    await asyncio.to_thread(old.receive)
    await asyncio.to_thread(new.publish, claim(1, (0, 10**9)), line(1, HONEST))

    async with flooded(logs_url):
        done = await asyncio.to_thread(new.run)

    assert isinstance(done, Done), done
    assert new.read(HONEST) == b"line\n"


@asynccontextmanager
async def flooded(url: str) -> AsyncIterator[None]:
    """Publish to the old partition meanwhile, as fast as the server takes it."""
    connection = Connection([url], "flood")
    await connection.ask(f"logs.p0.{EVIL}", b"line\n")

    async def flood() -> None:
        while True:
            for _ in range(10):
                await connection.publish(f"logs.p0.{EVIL}", b"line\n")
            await asyncio.sleep(0.001)

    task = asyncio.create_task(flood())
    try:
        yield
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.wait({task})
        await connection.close()


def test_a_claim_of_too_many_or_unknown_partitions_is_set_aside(pair: Pair) -> None:
    pair.publish(
        claim(1, *((number, 1) for number in range(9_000))),
        claim(1, *((0, number) for number in range(17))),
        claim(1, (7, 1)),
        claim(1, (0, 1), (9_999, 1)),
        claim(1, *((0, number) for number in range(16))),
        line(1, HONEST),
    )

    done = pair.new.receive()

    assert (done.quarantined, pair.new.read(HONEST)) == (4, b"line\n")
    reasons = [about["reason"] for about, _ in pair.new.set_aside()]
    assert [reason for reason in reasons if "more than 16 entries" in reason] == reasons[:2]
    assert [reason.split()[3] for reason in reasons[2:]] == ["7,", "9999,"]


CLAIMS = {
    "a partition that is not there": [claim(1, (7, 1))],
    "a partition without the host": [claim(1, (0, 1))],
    "its own partition": [claim(1, (1, 1))],
    "a move from here": [claim(1, moved=0)],
    "there and back": [claim(1, moved=0), claim(1, (0, 1))],
    "a line and a move": [line(1, EVIL), claim(1, moved=0)],
}


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS.keys())
def test_many_claims_are_received_in_as_few_batches_as_lines(
    logs_url: str, tmp_path: Path, claims: list[Message]
) -> None:
    new = Partition(logs_url, tmp_path, 1, partitions=2)
    new.claim()

    assert count_batches(new, claims * (MANY // len(claims))) <= 30


def test_many_claims_after_a_received_line_are_received_in_few_batches(
    logs_url: str, tmp_path: Path
) -> None:
    old = Partition(logs_url, tmp_path, 0, partitions=2)
    new = replace(old, number=1)
    for one in (old, new):
        one.claim()
    old.lines(EVIL, b"line\n")
    old.receive()

    assert count_batches(new, [claim(1, (0, number)) for number in range(MANY)]) <= 30


def seconds_to_receive(pair: Pair, messages: Sequence[Message]) -> float:
    first = pair.anybody[1].offset().next
    stored = pair.anybody[1].ask(lambda connection: publish_all(connection, messages))
    began = time.monotonic()
    while first <= stored:
        first = pair.new.session(SessionLimits(60.0, 0.1, 0.01), first).done.until
    return time.monotonic() - began


@pytest.mark.parametrize("payloads", [[b""], [b"", b"x\n"]], ids=["empty", "every other one"])
def test_many_empty_messages_are_received_about_as_soon_as_lines(
    processes: Processes, tmp_path: Path, payloads: list[bytes]
) -> None:
    pair = Pair(processes, tmp_path, 1)
    messages = [line(1, EVIL, payload) for payload in payloads]
    count = MANY // len(messages)

    plain = seconds_to_receive(pair, [line(1, EVIL, b"y\n")] * MANY)
    assert seconds_to_receive(pair, messages * count) < 10 * plain + 10
    assert pair.new.read(EVIL).count(b"x") == count * (len(messages) - 1)


def test_a_receiver_of_one_partition_counts_messages_of_others_but_reads_none(
    processes: Processes, tmp_path: Path
) -> None:
    pair = Pair(processes, tmp_path, 1)
    pair.publish(line(0, EVIL))
    name = count_name(1)
    config = {"name": name, "filter_subject": f"logs.p0.{EVIL}", "ack_policy": "none"}

    async def count_and_read(connection: Connection) -> int:
        call = f"CONSUMER.CREATE.LOGS.{name}.logs.p0.{EVIL}"
        made = await connection.api(call, {"stream_name": "LOGS", "config": config})
        for denied in (f"MSG.NEXT.LOGS.{name}", f"INFO.LOGS.{name}", f"RESET.LOGS.{name}"):
            with pytest.raises(Denied):
                await connection.api(f"CONSUMER.{denied}", {"batch": 1})
        pushed = {**config, "deliver_subject": "_INBOX_r1.x"}
        with pytest.raises(Rejected, match="may not set deliver_subject"):
            await connection.api(call, {"stream_name": "LOGS", "config": pushed})
        return int(made["num_pending"])

    assert ask(pair.server.address, count_and_read, pair.server.access("r1")) == 1


class Far(Connection):
    """A connection to a broker that is far away."""

    async def api(self, *about: Any, **more: Any) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return await super().api(*about, **more)


@pytest.mark.parametrize("lines_left", [0, 1])
async def test_claims_of_many_hosts_are_examined_in_batches_if_the_broker_is_far(
    logs_url: str, lines_left: int
) -> None:
    connection = Far([logs_url], "far")
    await connection.client()
    hosts = [f"h{number}" for number in range(60)]
    for host in hosts[: 60 * lines_left]:
        await connection.ask(f"logs.p1.{host}", b"left\n")
    claims = [
        HostClaim(host, Delivery(1, 100 + number, 1, 1, 0), (Followed(1, 99),))
        for number, host in enumerate(hosts)
    ]
    examiner = MovesExaminer(connection, 0, "LOGS", StreamLayout(2), Patience(0, 0, 0.5))

    moves = await examiner.examine(claims)
    await connection.close()

    assert moves.until is not None
    assert 100 < moves.until < 130
    assert list(moves.received) == hosts[: moves.until - 100]
