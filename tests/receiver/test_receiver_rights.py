"""A receiver with the rights for its own partition only."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from nats_logship.app.exits import OperatorError
from nats_logship.client.bucket import read
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import MAX_PAYLOAD, PAYLOAD_HEADROOM
from receiver.consume.assignment import Cause, Ending, SessionLimits
from receiver.driver.partitions import find_partitions
from receiver.driver.standby import ReceiverPresence, is_gone, request_report
from tests import secured
from tests.receiver.partition import Partition, blocked
from tests.receiver.supervised import Supervised
from tests.receiver.test_task_moves import HOST, lines, move, shipped
from tests.secured import Secured
from tests.support.commands import run_command
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


@pytest.fixture
def server(processes: Processes, tmp_path: Path) -> Secured:
    """Start a server for two receivers of a partition each, one of all, and an admin."""
    receivers = (secured.receiver("r0", 0), secured.receiver("r1", 1), secured.receiver("all"))
    return secured.start_secured(processes, tmp_path, *receivers, secured.admin("ops"))


async def test_least_rights_suffice_to_receive_and_leave(server: Secured, tmp_path: Path) -> None:
    anybody = Partition(server.url(), tmp_path)
    central = Partition(server.address, tmp_path, access=server.access("r0"))
    largest = b"x" * (MAX_PAYLOAD - PAYLOAD_HEADROOM - 1) + b"\n"
    # nats-server takes an empty message for the end of a pull that crosses accounts
    payloads = [b"", b"1\n", *[b""] * 30, largest, b"2\n", largest, largest, b"3\n", b""]
    last = await asyncio.to_thread(anybody.lines, "web01", *payloads)
    expected = b"".join(payloads)

    async with Supervised(central, session=SessionLimits(60.0, 60.0, 0.01)) as loop:
        assert await find_partitions(loop.connection)
        await loop.has(expected)
        await asyncio.to_thread(anybody.lines, "web01", b"4\n")
        await loop.has(expected + b"4\n")
        present = ReceiverPresence(loop.connection, lambda _: b"central")
        await present.start()
        assert not await is_gone(loop.connection, present.address)
        loop.stop.set()
        await loop.ends()

    assert loop.reports[-1].outcome is Ending.ASKED
    offset = await asyncio.to_thread(anybody.offset)
    assert (offset.next, offset.released) == (last + 2, True)
    assert "Violation" not in server.read_log()


async def test_a_partition_that_the_credential_lacks_is_named(
    server: Secured, tmp_path: Path
) -> None:
    other = Partition(server.address, tmp_path, 1, access=server.access("r0"))

    with pytest.raises(OperatorError, match="partition 1 is not in this receiver's credential"):
        async with Supervised(other, once=True, often=True) as loop:
            await loop.ends()


@pytest.mark.parametrize(
    ("payload", "headers"),
    [
        (b"x" * 10 + b"\n", None),
        (b"x" * 5_000 + b"\n", None),
        (b"x" * 20_000 + b"\n", None),
        (b"", {"Nats-Msg-Size": "5"}),  # looks as if the consumer delivered headers only
    ],
    ids=["small", "middle", "large", "forged"],
)
def test_empty_messages_delay_no_line_of_another_host(
    server: Secured, tmp_path: Path, payload: bytes, headers: dict[str, str] | None
) -> None:
    anybody = Partition(server.url(), tmp_path)
    anybody.claim()
    anybody.publish(*[("logs.p0.web01", b"", None), ("logs.p0.web01", payload, headers)] * 600)
    until = anybody.lines("web02", b"of an honest host") + 1

    central = Partition(server.address, tmp_path, access=server.access("r0"))
    report = central.session(SessionLimits(60.0, 2.0))

    assert report.done.until == until
    assert report.batches <= 20  # of 1,201 messages
    assert central.read("web02") == b"of an honest host\n"


def test_least_rights_suffice_for_a_host_that_moved(server: Secured, tmp_path: Path) -> None:
    old, new = (Partition(server.url(), tmp_path, number, partitions=2) for number in (1, 0))
    for one in (old, new):
        one.claim()
    old.publish(*shipped(old, 0, 3))
    move(old, new)
    new.publish(*shipped(new, 3, 3))

    limited = replace(new, access=server.access("r0"), url=server.address)
    blocked(limited.run(), Cause.MOVED, "partition 1", "sequence 4")
    replace(old, access=server.access("r1"), url=server.address).receive()
    limited.receive()

    assert new.read(HOST) == b"".join(lines(0, 6))


async def test_a_receiver_answers_admins_and_only_in_inboxes(server: Secured) -> None:
    own, other, admin, second = (
        Connection([server.address], name, server.access(name))
        for name in ("r0", "r1", "ops", "ops")
    )
    present, of_admin = (ReceiverPresence(one, lambda _: b"alive") for one in (own, second))
    for connection in (own, other, admin, second):
        await connection.api("STREAM.INFO.LOGS")
    await present.start()
    await of_admin.start()

    for asking in (other, admin):
        assert await request_report(asking, present.address) == b"alive"
        assert await is_gone(asking, f"{present.address}x")
    assert await request_report(admin, of_admin.address) == b"alive"

    await other.publish(f"logship.receiver.{present.address}", reply="$KV.LOGS_OFFSETS.p0")
    assert await request_report(other, present.address) == b"alive"
    assert await read(admin, "LOGS_OFFSETS", "p0") is None
    for connection in (own, other, admin, second):
        await connection.close()


def test_what_waits_in_a_partition_is_shown_to_who_may_receive_it(
    server: Secured, tmp_path: Path
) -> None:
    Partition(server.url(), tmp_path).lines("web01", b"1\n")

    def behind(name: str) -> list[int | None]:
        shown = run_command("logreceiver", "status", "--json", *server.options(name))
        return [one["behind"] for one in json.loads(shown)["partitions"]]

    assert behind("all") == [1, 0]
    assert "Violation" not in server.read_log()
    assert behind("r0") == [1, None]
