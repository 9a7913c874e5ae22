"""A batch: which lines of a message are written, which gaps are found, what is quarantined."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.message import EXPECTED_SEQUENCE, Section, Span
from receiver.consume.assignment import Assignment, Destination, Done
from receiver.consume.batch import Batch
from receiver.consume.judging import judge, read_expected_sequence
from receiver.storage.anomalies import AnomalyKind
from tests.receiver.partition import Message, Partition, lines_of, message
from tests.receiver.stored import opened

OURS = {"Log-Agent": "a"}
NOON = 1_700_000_000_000_000_000
_NUMBERS = st.sampled_from([0, 1, 5, 7, -1, 10**19, True, 1e3, "1", None])
_WHOLE = {"file": "/var/log/a", "id": "id", "start": 0, "end": 5, "size": 5, "lines": 1}
_SECTIONS = st.one_of(
    st.sampled_from([0, "x", None, [], _WHOLE]),
    st.fixed_dictionaries(
        {"file": st.sampled_from(["/var/log/a", "%ff%00", "../../etc", "", 1])},
        optional={
            "id": st.sampled_from(["id", "", "a:b", "id 1", 7]),
            "identity": st.sampled_from(["1:0::0:", "1:2", "x" * 300, 1]),
            "filtered": st.sampled_from([True, False, 1]),
            **dict.fromkeys(("start", "end", "size", "lines"), _NUMBERS),
        },
    ),
    st.integers(0, 30).map(lambda start: {**_WHOLE, "start": start, "end": start + 5}),
)
_SPANS = (
    st.text(max_size=12) | st.lists(_SECTIONS, max_size=3).map(json.dumps) | st.just("[" * 20_000)
)
_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Log-Agent": st.sampled_from(["1-00000001", "1-00000001", "", "\udcff"]),
        "Log-Spans": _SPANS,
        "Log-Read-At": st.sampled_from(["0", "1", "7", "-1", "9" * 40, "1e3", "٣", "", "x"]),
        "Content-Encoding": st.sampled_from(["zstd", "zstd", "gzip", "", "\udcff"]),
    },
)
_FRAME = zstandard.compress(b"line\n")
_UNSIZED = zstandard.ZstdCompressor(write_content_size=False).compress(b"line\n")
_PAYLOADS = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"line\n", b"line\nmore\n", _FRAME, _FRAME + b"more", _UNSIZED]),
    st.integers(0, len(_FRAME)).map(lambda length: _FRAME[:length]),
)
_SUBJECTS = st.sampled_from(
    ["logs.p0.bad", "logs.p0.worse", "logs.p0.a/b", "logs.p0.\udcff", "logs.p0", "logs.px.y", "x"]
)


def head(headers: dict[str, str] | None) -> bytes:
    """Return headers as they are on the wire, with any bytes in them."""
    if headers is None:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return b"NATS/1.0\r\n" + lines.encode("utf-8", "surrogateescape") + b"\r\n"


def write(folder: Path, messages: Sequence[Message], chunk: int = 10_000) -> Done:
    """Write messages as one batch of partition 0, in chunks of so many."""
    destination = Destination(folder / "out", folder / "state", 0, ())
    delivered = [
        (
            Delivery(1, sequence, sequence, NOON + sequence, len(messages) - sequence),
            RawMessage(subject, f"ack-{sequence}", head(headers), payload),
        )
        for sequence, (subject, payload, headers) in enumerate(messages, 1)
    ]
    with opened(destination) as partition, partition.open_output() as writing:
        batch = Batch(Assignment(0, 1, 1, 1), partition, writing)
        for begin in range(0, len(delivered), chunk):
            part = delivered[begin : begin + chunk]
            if batch.write(part) < len(part):
                break
        return batch.finish()


@settings(max_examples=80, deadline=None)
@given(messages=st.lists(st.tuples(_SUBJECTS, _PAYLOADS, _HEADERS), min_size=1, max_size=12))
def test_each_message_is_written_or_quarantined_whole(messages: list[Message]) -> None:
    sent: list[Message] = []
    for number, one in enumerate(messages):
        sent += [one, ("logs.p0.good", b"line %d" % number, None)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = write(folder, sent, chunk=5)

        good = b"".join(b"line %d\n" % number for number in range(len(messages)))
        assert (folder / "out" / "good.log").read_bytes() == good
        kept = Partition("", folder).set_aside()
        assert len(kept) == done.quarantined
        for about, payload in kept:
            assert payload == sent[int(about["sequence"]) - 1][1]
            assert about["reason"]
        written = {path.name for path in (folder / "out").glob("*.log")}
        assert written <= {"good.log", "bad.log", "worse.log"}


LINES = {
    "another file's line between": (
        [("a", 0, b"piece, "), ("b", 0, b"other\n"), ("a", 7, b"rest\n")],
        b"piece, \nother\nrest\n",
    ),
    "its rest in a section of its own": (
        [("a", 0, b"piece, "), ("a", 7, b"rest\n"), ("b", 0, b"other\n")],
        b"piece, rest\nother\n",
    ),
    "a gap behind it": (
        [("a", 0, b"piece, "), ("a", 9, b"later\n"), ("a", 15, b"next\n")],
        b"piece, \nlater\nnext\n",
    ),
    "another file's gap between": (
        [("b", 0, b"1\n"), ("a", 0, b"piece, "), ("b", 9, b"9\n"), ("a", 7, b"rest\n")],
        b"1\npiece, \n9\nrest\n",
    ),
}


@pytest.mark.parametrize(("sections", "written"), LINES.values(), ids=LINES)
@pytest.mark.parametrize("is_one", [True, False])
def test_an_unfinished_line_is_continued_only_by_its_own_rest(
    tmp_path: Path, sections: list[tuple[str, int, bytes]], written: bytes, is_one: bool
) -> None:
    parts = [lines_of(*section) for section in sections]
    sent = [message("web01", *parts)] if is_one else [message("web01", part) for part in parts]

    write(tmp_path, sent)

    assert (tmp_path / "out" / "web01.log").read_bytes() == written


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=20))
def test_each_byte_is_written_once_and_gaps_are_named(sections: list[tuple[int, int]]) -> None:
    content, reached = bytes(range(256)), None
    written: list[int] = []
    missing: set[int] = set()
    for start, length in sections:
        section = Section("/var/log/a", Span("id", start, start + length), length, 0)
        found = judge(reached, section, "web01", 1)
        written += content[start : start + length][found.skip :]
        if found.anomaly and found.anomaly.kind is AnomalyKind.GAP:
            missing |= set(range(found.anomaly.start, found.anomaly.end))
        reached = max(start + length, reached or 0)

    assert written == sorted(set(written))
    if sections:
        assert set(written) | missing == set(range(sections[0][0], reached or 0))


@pytest.mark.parametrize(
    ("reached", "skip", "kind"),
    [(40, 0, AnomalyKind.GAP), (55, 0, AnomalyKind.DOUBT), (90, 7, AnomalyKind.REPEAT)],
    ids=["gap", "unknown which lines were received", "all received"],
)
def test_a_filtered_section_is_written_whole_or_not(
    reached: int, skip: int, kind: AnomalyKind
) -> None:
    section = Section("/var/log/a", Span("id", 50, 90), 7, 0, filtered=True)

    found = judge(reached, section, "web01", 7)

    assert found.anomaly
    assert (found.skip, found.anomaly.kind) == (skip, kind)


@pytest.mark.parametrize(
    ("headers", "predecessor"),
    [
        (None, None),
        ({EXPECTED_SEQUENCE: "5"}, None),  # of another client
        (OURS, None),
        (OURS | {EXPECTED_SEQUENCE: "0"}, 0),
        (OURS | {EXPECTED_SEQUENCE: "5"}, 5),
        (OURS | {EXPECTED_SEQUENCE: "-5"}, None),
        (OURS | {EXPECTED_SEQUENCE: "9" * 99}, None),
        (OURS | {EXPECTED_SEQUENCE: "5", "Nats-Stream-Source": "x 5"}, None),  # of another stream
    ],
)
def test_a_message_names_its_predecessor(
    headers: dict[str, str] | None, predecessor: int | None
) -> None:
    assert read_expected_sequence(headers) == predecessor
