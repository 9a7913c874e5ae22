"""A task and what it is sent: claims, rubbish, hostile names, gaps and repeats, and messages that were removed before they were received."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from broker.topology import Topology
from nats_logship.client.connection import Connection
from nats_logship.wire.message import EXPECTED_SEQUENCE
from nats_logship.wire.streams import STREAM
from receiver.consume.assignment import Done
from receiver.storage.anomalies import AnomalyKind
from tests.conftest import apply_topology
from tests.raw import Raw
from tests.receiver.partition import Partition, lines_of, message, ours

pytestmark = pytest.mark.nats


def test_a_subject_that_is_not_utf8_is_set_aside_and_stops_nobody(partition: Partition) -> None:
    partition.lines("web01", b"one")
    url = urlsplit(partition.url)
    with Raw(url.port or 0, url.username or "", url.password or "") as client:
        assert not client.send(b"PUB logs.p0.\xff\xfe 4\r\nevil\r\n").errors
        for head in (b"NATS/1.0\r\nX: \xff\xfe\r\n\r\n", b"NATS/1.0 \xff\xfe\xff\r\n\r\n"):
            sizes = len(head), len(head) + 4
            said = client.send(b"HPUB logs.p0.web01 %d %d\r\n%bmore\r\n" % (*sizes, head))
            assert not said.errors

    done = partition.run()

    assert isinstance(done, Done)
    assert (done.messages, done.quarantined) == (4, 1)
    assert partition.files() == {"web01.log": b"one\nmore\nmore\n"}


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
    assert [(f.kind, f.start, f.end) for f in done.anomalies] == [
        (AnomalyKind.REPEAT, 6, 12),
        (AnomalyKind.REPEAT, 9, 12),
        (AnomalyKind.GAP, 16, 20),
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
        "after": 0,
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


@pytest.mark.parametrize("between", ["", "death", "another worker"])
def test_files_in_utf16_become_their_bytes_one_after_the_other(
    partition: Partition, between: str
) -> None:
    """A shipper knows newlines as the byte 0x0a; the last section of a file is the rest of one."""
    files = ["one\ntwo\n".encode("utf-16"), "three\n".encode("utf-16")]
    (first, second), cut = files, len(files[0]) - 1
    partition.publish(
        ours("web01", "a", 0, first[:cut]),
        ours("web01", "a", cut, first[cut:]),
    )
    done = partition.run()
    partition.publish(ours("web01", "b", 0, second[:-1]))
    if between == "death":
        assert partition.run_apart(3, fault="stored") == -9
    elif between == "another worker":
        assert partition.run_apart(3) == 0
    partition.publish(ours("web01", "b", len(second) - 1, second[-1:]))
    partition.run(3)

    assert isinstance(done, Done)
    assert partition.read("web01") == first + second


LINE = b"x" * 9_999 + b"\n"


@pytest.fixture
def limited(fresh_url: str, tmp_path: Path) -> Partition:
    apply_topology(fresh_url, Topology(partitions=2, max_bytes=300_000, discard="old"))
    made = Partition(fresh_url, tmp_path)
    made.claim()
    return made


def shipped(partition: Partition, host: str, after: int, *spans: tuple[str, int]) -> int:
    """Publish a line for each file and start, as a shipper does whose last message is `after`."""
    for file, start in spans:
        subject, payload, headers = ours(host, file, start, LINE)
        expected = {EXPECTED_SEQUENCE: str(after)}
        after = partition.publish((subject, payload, headers | expected))
    return after


def remove(partition: Partition, *sequences: int) -> None:
    async def remove_all(connection: Connection) -> None:
        for sequence in sequences:
            await connection.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})

    partition.ask(remove_all)


def losses(partition: Partition) -> list[tuple[str, int, int]]:
    found = [one for one in partition.told() if one["kind"] == "loss"]
    return [(one["host"], one["after"], one["sequence"]) for one in found]


def test_a_full_stream_that_discards_old_loses_no_line_in_silence(limited: Partition) -> None:
    shipped(limited, "web01", 0, *(("a", n * len(LINE)) for n in range(120)))

    limited.receive()
    limited.receive(121)

    received = len(limited.read("web01")) // len(LINE)
    assert 0 < received < 120
    assert losses(limited) == [("web01", 0, 120 - received + 1)]


def test_a_loss_is_found_behind_an_earlier_receiver_and_told_once(limited: Partition) -> None:
    last = shipped(limited, "web01", 0, ("a", 0))
    done = limited.receive()
    last = shipped(limited, "web01", last, ("b", 0), ("b", 10_000))
    remove(limited, last - 1)

    done = limited.receive(done.until)
    shipped(limited, "web01", last, ("b", 20_000))
    done = limited.receive(done.until)
    limited.receive(done.until)

    assert losses(limited) == [("web01", 1, 3)]


def test_what_was_received_by_another_and_removed_is_no_loss(limited: Partition) -> None:
    last = shipped(limited, "web01", 0, ("a", 0), ("a", 10_000))
    remove(limited, 1)
    limited.claim(last + 1, epoch=2)  # the state of the receiver before is not here
    shipped(limited, "web01", last, ("a", 20_000))

    done = limited.receive(last + 1, 2)
    limited.receive(done.until, 2)

    assert limited.told() == []


def test_a_gap_whose_bytes_are_known_is_told_as_a_gap_alone_and_what_strangers_send_is_no_loss(
    limited: Partition,
) -> None:
    last = shipped(limited, "web01", 0, ("a", 0), ("a", 10_000))
    parts = lines_of("b", 0, LINE), lines_of("a", 20_000, LINE), lines_of("c", 0, LINE)
    subject, payload, headers = message("web01", *parts)
    limited.publish((subject, payload, headers | {EXPECTED_SEQUENCE: str(last)}))
    remove(limited, 2)
    limited.lines("web01", b"a stranger's")
    claim = {"Log-Agent": "2-2", "Log-Read-At": "1"}
    limited.publish(("logs.p0.web01", b"", claim))
    last = limited.publish(("logs.p0.web01", b"x", {"Content-Encoding": "br"}))
    shipped(limited, "web01", last, ("a", 30_000))

    done = limited.receive()
    limited.receive(done.until)

    assert [(one["kind"], one["start"], one["end"]) for one in limited.told()] == [
        ("gap", 10_000, 20_000)
    ]
