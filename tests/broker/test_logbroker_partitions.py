"""`logbroker partitions`: hosts go over to other partitions while shippers write, whatever dies in between."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.client import bucket
from broker.client.config import current_partitions, existing_partitions
from broker.client.connection import Connection
from broker.provision.apply import apply, carry_out, look_at_partitions
from broker.provision.plan import plan_partitions
from broker.topology import Topology
from broker.wire.message import Origin, Section, decode_origin
from broker.wire.streams import STREAM
from broker.wire.subjects import Subject
from tests.broker.conftest import ask
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[2]
HOSTS = ("web01", "web02")
Call = Callable[..., Any]


async def filled(connection: Connection, partitions: int = 2) -> None:
    """Set up a broker that holds a line of each of two hosts and an offset."""
    await apply(connection, Topology(partitions=partitions))
    for host in HOSTS:
        await connection.ask(str(Subject.for_host(host, partitions)), b"line\n")
    await bucket.write(connection, "LOGS_OFFSETS", "p0", b"{}", 0)


async def numbers(connection: Connection) -> tuple[int, int]:
    return await current_partitions(connection), await existing_partitions(connection)


async def subjects_taken(connection: Connection) -> list[str]:
    taken: list[str] = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]["subjects"]
    return taken


@dataclass(frozen=True)
class Stored:
    """A message of a shipper in the stream."""

    sequence: int
    subject: Subject
    origin: Origin


async def stored(connection: Connection) -> list[Stored]:
    last = int((await connection.api(f"STREAM.INFO.{STREAM}"))["state"]["last_seq"])
    found = []
    for sequence in range(1, last + 1):
        answer = await connection.call(f"DIRECT.GET.{STREAM}", b'{"seq": %d}' % sequence)
        headers = answer.headers or {}
        origin = decode_origin(headers)
        assert origin is not None
        found.append(Stored(sequence, Subject.parse(headers["Nats-Subject"]), origin))
    return found


@contextmanager
def written_all_the_time(folder: Path) -> Iterator[None]:
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.wait(0.01):
            for host in HOSTS:
                with (folder / f"{host}.log").open("ab") as log:
                    log.write(b"%s %d\n" % (host.encode(), number))
            number += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


def shipped(messages: list[Stored], host: str) -> int:
    """Return the end of the host's file in the stream, where each section begins at the end of the one before."""
    end = 0
    for section in sections(messages, host):
        assert section.span.start == end
        end = section.span.end
    return end


def sections(messages: list[Stored], host: str) -> list[Section]:
    return [one for m in messages if m.subject.host == host for one in m.origin.sections]


def judge_moves(messages: list[Stored], host: str) -> list[int]:
    """Return the partitions that had the host's lines; check that each move is said on both subjects as the protocol wants it."""
    own = [message for message in messages if message.subject.host == host]
    at: list[Stored] = []
    for message in own:
        if not message.origin.sections:
            continue
        if at and at[-1].subject != message.subject:
            before, now = at[-1].subject.partition, message.subject.partition
            claim = next(m for m in reversed(own) if m.sequence < message.sequence)
            while not claim.origin.follows:
                claim = own[own.index(claim) - 1]
            follows = {one.partition: one.sequence for one in claim.origin.follows}
            assert claim.subject == message.subject
            assert at[-1].sequence < follows[before] < claim.sequence
            left = next(m for m in own if m.sequence == follows[before])
            assert (left.subject.partition, left.origin.moved) == (before, now)
        at.append(message)
    path = [message.subject.partition for message in at]
    return [one for n, one in enumerate(path) if not n or path[n - 1] != one]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_shippers_go_over_while_they_ship_and_every_line_is_there_once_and_in_order(
    start_broker: Call, logbroker_inside: Call, processes: Processes, tmp_path: Path
) -> None:
    url = start_broker("--partitions", "2").wait_ready()["server"]
    shippers = [
        processes.start(
            f"shipper-{host}",
            [
                *(sys.executable, "-m", "shipper", "--server", url, "--host", host),
                *("--file", str(tmp_path / f"{host}.log")),
            ],
            folder=ROOT,
        )
        for host in HOSTS
    ]

    def are_all_at(partitions: int) -> bool:
        heads = {str(Subject.for_host(host, partitions)) for host in HOSTS}
        status = json.loads(logbroker_inside("hosts", "--server", url, "--json").stdout)
        found = {f"logs.p{n}.{one['host']}" for one in status for n in one["partitions"]}
        return heads <= found

    with written_all_the_time(tmp_path):
        wait_until("both ship", lambda: are_all_at(2), 90, shippers, every=0.5)
        for number in (5, 3):
            done = logbroker_inside("partitions", str(number), "--yes", "--server", url)
            assert (done.returncode, done.stderr) == (0, "")
            wait_until("both are over", lambda n=number: are_all_at(n), 60, shippers, every=0.5)
            time.sleep(0.5)

    sizes = {host: (tmp_path / f"{host}.log").stat().st_size for host in HOSTS}

    def found() -> dict[str, int]:
        messages = ask(url, stored)
        return {host: shipped(messages, host) for host in HOSTS}

    wait_until("all is shipped", lambda: found() == sizes, 60, shippers, every=0.5)
    messages = ask(url, stored)
    for host in HOSTS:
        wanted = [Subject.for_host(host, number).partition for number in (2, 5, 3)]
        assert judge_moves(messages, host) == [
            one for n, one in enumerate(wanted) if not n or wanted[n - 1] != one
        ]
    status = json.loads(logbroker_inside("status", "--server", url, "--json").stdout)
    assert (status["current_partitions"], len(status["partitions"])) == (3, 5)
    assert status["unread"] == {}
    assert sum(one["behind"] for one in status["partitions"]) == status["messages"]


def test_a_broker_keeps_what_hosts_have_left_and_refuses_another_number(
    start_broker: Call, logbroker_inside: Call
) -> None:
    broker = start_broker("--partitions", "5")
    url = broker.wait_ready()["server"]
    ask(url, (str(Subject.for_host("web01", 5)), b"line\n"))

    done = logbroker_inside("partitions", "3", "--yes", "--server", url)
    broker.end()

    assert "hosts are spread over 5 partitions now" in done.stdout
    refused = start_broker("--partitions", "5")
    assert refused.popen.wait(30) == 78
    assert "`logbroker partitions 5`" in refused.said
    for options in ((), ("--partitions", "3")):
        again = start_broker(*options)
        url = again.wait_ready()["server"]
        assert ask(url, numbers) == (3, 5)
        assert len(ask(url, subjects_taken)) == 5
        again.end()


@pytest.mark.parametrize("after", [2, 4])
def test_a_change_that_was_broken_off_is_finished_by_the_same_command(
    fresh_url: str, logbroker_inside: Call, after: int
) -> None:
    async def broken_off(connection: Connection) -> None:
        await filled(connection, 3)
        made = plan_partitions(after, await look_at_partitions(connection))
        for steps in range(len(made)):
            await carry_out(connection, made[:steps])
            assert await current_partitions(connection) == 3

    ask(fresh_url, broken_off)

    call = ("partitions", str(after), "--yes", "--server", fresh_url)
    first, second = logbroker_inside(*call), logbroker_inside(*call)

    assert (first.returncode, second.returncode) == (0, 0)
    assert f"hosts are spread over {after} partitions already" in second.stdout
    assert ask(fresh_url, numbers) == (after, max(3, after))
    assert len(ask(fresh_url, subjects_taken)) == max(3, after)


def test_a_plan_is_shown_as_json_too_and_a_dry_run_changes_nothing(
    fresh_url: str, logbroker_inside: Call
) -> None:
    ask(fresh_url, filled)
    call = ("partitions", "4", "--json", "--server", fresh_url)

    planned, done, again = (
        logbroker_inside(*call, *words) for words in (("--dry-run",), ("--yes",), ("--yes",))
    )

    assert json.loads(planned.stdout) == json.loads(done.stdout) != []
    assert json.loads(again.stdout) == []
    assert ask(fresh_url, numbers) == (4, 4)


async def test_two_who_change_it_at_once_do_not_overwrite_each_other(fresh_url: str) -> None:
    connection = Connection([fresh_url], "test")
    await filled(connection)
    one, other = [
        plan_partitions(number, await look_at_partitions(connection)) for number in (4, 5)
    ]

    await carry_out(connection, one)
    with pytest.raises(Exception, match="was changed by somebody else meanwhile"):
        await carry_out(connection, other)

    assert await current_partitions(connection) == 4
    await connection.close()
