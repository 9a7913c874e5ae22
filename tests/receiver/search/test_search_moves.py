"""Hosts that really move to another partition, and to another stream: found once and in order."""

import json
import urllib.request
from pathlib import Path

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.subjects import Subject, partition_of
from tests.receiver.search.searching import found
from tests.support.ports import free_port
from tests.support.processes import Processes, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(240)]

# from p1 in LOGS_1 to a partition in LOGS_0, which is searched first
HOST = next(
    name
    for name in (f"web{number:02}" for number in range(100))
    if partition_of(name, 2) == 1 and partition_of(name, 7) % 2 == 0
)


def _numbered(first: int, until: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, until))


def _last_line(suite: Suite, partitions: int) -> bytes:
    """Return the last line of the host among so many partitions."""

    async def read(connection: Connection) -> bytes:
        subject = Subject.for_host(HOST, partitions)
        stream = f"LOGS_{subject.partition % 2}"
        answer = await connection.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
        return answer.data.splitlines()[-1] if answer.data else b""

    return suite.ask(read)


def _ask_console(suite: Suite, processes: Processes) -> bytes:
    port = free_port()
    options = ["console", "--listen", f"127.0.0.1:{port}", "--server", suite.url]
    console = suite.start_program("logbroker", "console", options)
    wait_until("the console listens", lambda: "open http" in console.read_log(), 60, [console])
    shown, address = list[str](), f"http://127.0.0.1:{port}/lines?order=first&count=1000"
    with urllib.request.urlopen(f"{address}&host={HOST}", timeout=60) as answer:
        for line in answer:
            document = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            shown += [one["text"] for one in document.get("lines", [])]
            if document.get("searched"):
                break
    return "".join(f"{text}\n" for text in shown).encode()


def test_a_host_that_moved_to_another_stream_is_found_once_and_in_order(
    tmp_path: Path, processes: Processes
) -> None:
    suite = Suite(tmp_path, processes, partitions=2)
    suite.start_broker("--streams", "2")
    log = tmp_path / "app.log"
    written = 0

    def write() -> bytes:
        nonlocal written
        with log.open("ab") as file:
            file.write(_numbered(written, written + 10))
        written += 10
        return b"line %d" % (written - 1)

    last = write()
    suite.start_shipper(HOST, [log])
    wait_until("lines are in the stream", lambda: _last_line(suite, 2) == last, 60)
    where = ("--server", suite.url, "--output", str(suite.output))
    arguments = ("--partition", "all", *where, "--once")
    assert suite.start_program("logreceiver", "receiver", arguments).wait(120) == 0

    last = write()
    wait_until("newer lines are in the stream", lambda: _last_line(suite, 2) == last, 60)
    suite.administer("partitions", "7", "--yes")
    # the shipper reads the number every ten seconds, and moves with its next lines
    wait_until("the host moved", lambda: bool(write() and _last_line(suite, 7)), 60, every=1)
    last = write()
    wait_until("all lines are in the stream", lambda: _last_line(suite, 7) == last, 60)

    everything = _numbered(0, written)
    assert found(*where, "--host", HOST) == everything
    assert found("--server", suite.url, "--host", HOST) == everything
    newest = found(*where, "--host", HOST, "--limit", str(written - 15))
    assert newest == _numbered(15, written)
    around = ("--host", HOST, "--match", f"line {written - 10}$", "--context", "10")
    assert found("--server", suite.url, *around) == _numbered(written - 20, written)
    assert _ask_console(suite, processes) == everything
