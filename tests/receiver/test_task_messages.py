"""A task and what it is sent: claims, rubbish, hostile names, gaps and repeats."""

import json
import socket

import pytest

from receiver.consume.assignment import Done
from receiver.storage.findings import FindingKind
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats


def test_a_subject_that_is_not_utf8_is_set_aside_and_stops_nobody(partition: Partition) -> None:
    partition.lines("web01", b"one")
    _publish_raw(partition.url, b"PUB logs.p0.\xff\xfe 4\r\nevil\r\n")
    header = b"NATS/1.0\r\nX: \xff\xfe\r\n\r\n"
    _publish_raw(
        partition.url,
        b"HPUB logs.p0.web01 %d %d\r\n%stwo\r\n" % (len(header), len(header) + 3, header),
    )
    header = b"NATS/1.0 \xff\xfe\xff\r\n\r\n"
    _publish_raw(
        partition.url,
        b"HPUB logs.p0.web01 %d %d\r\n%sthree\r\n" % (len(header), len(header) + 5, header),
    )

    done = partition.run()

    assert isinstance(done, Done)
    assert (done.messages, done.quarantined) == (4, 1)
    assert partition.files() == {"web01.log": b"one\ntwo\nthree\n"}


def _publish_raw(url: str, command: bytes) -> None:
    user, _, rest = url.removeprefix("nats://").partition(":")
    password, _, place = rest.partition("@")
    host, _, port = place.partition(":")
    login = json.dumps({"verbose": False, "headers": True, "user": user, "pass": password})
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(b"CONNECT %s\r\n%sPING\r\n" % (login.encode(), command))
        heard = b""
        while b"PONG" not in heard:
            heard += connection.recv(4096)
        assert b"-ERR" not in heard


def test_gaps_and_repeats_are_found_across_batches_and_not_invented_by_an_undo(
    partition: Partition,
) -> None:
    partition.publish(ours("web01", "a", 0, b"12345\n"))
    first = partition.receive()
    partition.publish(ours("web01", "a", 6, b"67890\n"))
    partition.run_apart(first.until, fault="stored")
    partition.publish(
        ours("web01", "a", 6, b"67890\n"),
        ours("web01", "a", 9, b"90\nabc\n"),
        ours("web01", "a", 20, b"later\n"),
        ours("other", "a", 20, b"another host's file of that id\n"),
    )

    done = partition.run(first.until)

    assert isinstance(done, Done)
    assert [(f.kind, f.start, f.end) for f in done.findings] == [
        (FindingKind.REPEAT, 6, 12),
        (FindingKind.REPEAT, 9, 12),
        (FindingKind.GAP, 16, 20),
    ]
    assert partition.read("web01") == b"12345\n67890\nabc\nlater\n"
    partition.run(done.until)
    (gap,) = partition.told()
    assert gap.pop("since") <= gap.pop("until")
    assert gap == {
        "kind": "gap",
        "host": "web01",
        "file": "/var/log/a",
        "file_id": "a",
        "start": 16,
        "end": 20,
        "sequence": 5,
        "partition": 0,
        "bytes": 4,
    }


@pytest.mark.parametrize("between", ["", "death", "another worker"])
def test_a_line_whose_rest_is_long_in_coming_is_ended_before_lines_of_another_file(
    partition: Partition, between: str
) -> None:
    """A shipper sends a line that is too long in pieces, and waits for the next one a second at most."""
    partition.publish(ours("web01", "long", 0, b"piece, "), ours("web01", "long", 7, b"more, "))
    first = partition.run()
    partition.publish(ours("web01", "b", 0, b"other\n"), ours("web01", "long", 13, b"rest\n"))
    if between == "death":
        assert partition.run_apart(3, fault="stored") == -9
    elif between == "another worker":
        assert partition.run_apart(3) == 0

    second = partition.run(3)

    assert isinstance(first, Done)
    assert isinstance(second, Done), second
    assert partition.read("web01") == b"piece, more, \nother\nrest\n"
    assert partition.offset().next == 5
