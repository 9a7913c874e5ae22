"""Messages of all kinds: claims, garbage, gaps, repeats, and messages removed unread."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from broker.topology import Topology
from nats_logship.wire.message import EXPECTED_SEQUENCE, decode_payload
from nats_logship.wire.streams import STREAM
from receiver.consume import judging
from receiver.consume.assignment import Done
from receiver.storage.anomalies import AnomalyKind
from tests.conftest import apply_topology
from tests.raw import Raw
from tests.receiver.partition import Message, Partition, api, lines_of, message, ours

pytestmark = pytest.mark.nats


def test_a_subject_that_is_not_utf8_is_quarantined(partition: Partition) -> None:
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


def test_gaps_and_repeats_of_an_undone_batch_are_found_again(partition: Partition) -> None:
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
    found = [(one.kind, one.start, one.end) for one in done.anomalies]
    repeat, gap = AnomalyKind.REPEAT, AnomalyKind.GAP
    assert found == [(repeat, 6, 12), (repeat, 9, 12), (gap, 16, 20)]
    assert partition.read("web01") == b"12345\n67890\nabc\nlater\n"
    partition.run(done.until)
    (one,) = partition.read_gaps()
    assert one.pop("since") <= one.pop("until")
    assert one == {
        **{"kind": "gap", "host": "web01", "file": "/var/log/a", "file_id": "a"},
        **{"start": 16, "end": 20, "unit": "bytes", "bytes": 4, "sequence": 5, "after": 0},
        "partition": 0,
    }


def test_a_gap_of_a_journal_counts_entries_and_its_sections_are_never_cut(
    partition: Partition,
) -> None:
    def entries(start: int, end: int, text: bytes) -> Message:
        section, lines = lines_of("journal", start, text, end=start + len(text))
        span = replace(section.span, end=end)
        return message("web01", (replace(section, span=span, unit="entries"), lines))

    partition.publish(
        entries(7, 9, b"one\ntwo\n"),
        entries(7, 9, b"one\ntwo\n"),  # the same again
        entries(12, 12, b""),  # three entries are lost
        entries(8, 14, b"in doubt\n"),
    )

    done = partition.run()

    assert isinstance(done, Done)
    kinds = [(one.kind.value, one.start, one.end, one.unit) for one in done.anomalies]
    of_entries = "entries"
    assert kinds == [
        ("repeat", 7, 9, of_entries),
        ("gap", 9, 12, of_entries),
        ("doubt", 8, 12, of_entries),
    ]
    assert partition.read("web01") == b"one\ntwo\nin doubt\n"
    (gap,) = partition.read_gaps()
    assert (gap["unit"], gap["entries"]) == ("entries", 3)
    assert "bytes" not in gap


UTF16 = "one\ntwo\n".encode("utf-16"), "three\n".encode("utf-16")
UNFINISHED = {
    "a long line": (
        [ours("web01", "long", 0, b"piece, "), ours("web01", "long", 7, b"more, ")],
        [ours("web01", "b", 0, b"other\n"), ours("web01", "long", 13, b"rest\n")],
        b"piece, more, \nother\nrest\n",
    ),
    "UTF-16": (
        [ours("web01", "a", 0, UTF16[0][:-1]), ours("web01", "a", 17, UTF16[0][-1:])],
        [ours("web01", "b", 0, UTF16[1][:-1]), ours("web01", "b", 13, UTF16[1][-1:])],
        b"".join(UTF16),
    ),
}


@pytest.mark.parametrize("between", ["", "death", "another worker"])
@pytest.mark.parametrize(("before", "after", "whole"), UNFINISHED.values(), ids=UNFINISHED)
def test_an_unfinished_line_is_ended_only_before_lines_of_another_file(
    partition: Partition, between: str, before: list[Message], after: list[Message], whole: bytes
) -> None:
    partition.publish(*before)
    assert isinstance(partition.run(), Done)
    partition.publish(after[0])
    if between == "death":
        assert partition.run_apart(3, fault="stored") == -9
    elif between == "another worker":
        assert partition.run_apart(3) == 0
    partition.publish(after[1])

    assert isinstance(partition.run(3), Done)

    assert partition.read("web01") == whole
    assert partition.offset().next == 5


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


def remove(partition: Partition, sequence: int) -> None:
    api(partition.url, f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})


def losses(partition: Partition) -> list[tuple[str, int, int]]:
    found = [one for one in partition.read_gaps() if one["kind"] == "loss"]
    return [(one["host"], one["after"], one["sequence"]) for one in found]


def test_lines_that_a_full_stream_discards_are_reported(limited: Partition) -> None:
    shipped(limited, "web01", 0, *(("a", n * len(LINE)) for n in range(120)))

    limited.receive()
    limited.receive(121)

    received = len(limited.read("web01")) // len(LINE)
    assert 0 < received < 120
    assert losses(limited) == [("web01", 0, 120 - received + 1)]


def test_a_loss_is_found_across_receivers_and_reported_once(limited: Partition) -> None:
    last = shipped(limited, "web01", 0, ("a", 0))
    done = limited.receive()
    last = shipped(limited, "web01", last, ("b", 0), ("b", 10_000))
    remove(limited, last - 1)

    done = limited.receive(done.until)
    shipped(limited, "web01", last, ("b", 20_000))
    done = limited.receive(done.until)
    limited.receive(done.until)

    assert losses(limited) == [("web01", 1, 3)]


def test_messages_that_another_receiver_has_received_are_no_loss(limited: Partition) -> None:
    last = shipped(limited, "web01", 0, ("a", 0), ("a", 10_000))
    remove(limited, 1)
    limited.claim(last + 1, epoch=2)  # the state of the receiver before is not here
    shipped(limited, "web01", last, ("a", 20_000))

    done = limited.receive(last + 1, 2)
    limited.receive(done.until, 2)

    assert limited.read_gaps() == []


def test_a_gap_is_reported_as_no_loss_and_foreign_messages_cause_none(limited: Partition) -> None:
    last = shipped(limited, "web01", 0, ("a", 0), ("a", 10_000))
    parts = lines_of("b", 0, LINE), lines_of("a", 20_000, LINE), lines_of("c", 0, LINE)
    subject, payload, headers = message("web01", *parts)
    limited.publish((subject, payload, headers | {EXPECTED_SEQUENCE: str(last)}))
    remove(limited, 2)
    limited.lines("web01", b"a stranger's")
    limited.publish(("logs.p0.web01", b"", {"Log-Agent": "2-2", "Log-Read-At": "1"}))
    last = limited.publish(("logs.p0.web01", b"x", {"Content-Encoding": "br"}))
    shipped(limited, "web01", last, ("a", 30_000))

    done = limited.receive()
    limited.receive(done.until)

    found = [(one["kind"], one["start"], one["end"]) for one in limited.read_gaps()]
    assert found == [("gap", 10_000, 20_000)]


def test_what_happened_in_a_batch_that_is_narrowed_down_is_reported_once(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(headers: Mapping[str, str] | None, data: bytes, *more: Any) -> bytes:
        if data.startswith(b"poison"):
            raise ValueError("a defect")
        return decode_payload(headers, data, *more)

    partition = replace(partition, pull=400)
    partition.lines("web01", b"one")
    done = partition.receive()
    partition.live.write_bytes(b"by another program\n")
    partition.lines("web01", LINE[-300:], b"poison", b"two")
    monkeypatch.setattr(judging, "decode_payload", decode)

    notices = partition.receive(done.until).notices

    assert partition.read("web01").endswith(LINE[-300:] + b"two\n")
    assert [payload for _, payload in partition.set_aside()] == [b"poison"]
    assert len(notices) == 2, notices
    assert "web01.log: 15 bytes from byte 4 on" in notices[0]
    assert "message 3 of logs.p0.web01 goes into quarantine" in notices[1]
