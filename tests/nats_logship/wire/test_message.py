import json
import random
import tracemalloc
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.client.connection import Connection
from nats_logship.wire.message import (
    ALWAYS_BYTES,
    MAX_ID_BYTES,
    MAX_LINES_BYTES,
    MAX_PATH_BYTES,
    MAX_SPANS_BYTES,
    Followed,
    Identity,
    MalformedMessage,
    Origin,
    Section,
    Span,
    decode_origin,
    decode_payload,
    encode_origin,
    estimate_size,
    split_sections,
)
from nats_logship.wire.streams import MAX_PARTITIONS

ZSTD = {"Content-Encoding": "zstd"}
LAST = 2**63 - 1  # the furthest position of a file

tokens = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=128)
hexes = st.text("0123456789abcdef", max_size=32)
inodes = st.integers(0, 2**64 - 1)
identities = st.builds(Identity, inodes, st.integers(0, 1024), hexes, st.integers(0, 1024), hexes)
paths = st.binary(max_size=80).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@st.composite
def sections(draw: st.DrawFn) -> Section:
    """Return any section that can be true."""
    size, filtered = draw(st.integers(0, 1000)), draw(st.booleans())
    length = size + draw(st.integers(0, 10**9 if filtered else 0))
    start = draw(st.integers(0, LAST - length))
    span = Span(draw(tokens), start, start + length)
    lines, identity = draw(st.integers(0, size)), draw(st.none() | identities)
    return Section(draw(paths), span, size, lines, identity, filtered)


agents = {"agent": tokens, "read_at": st.integers(0, 2**64 - 1)}
many = st.lists(sections(), max_size=5).map(tuple)
origins = st.builds(Origin, **agents, sections=many, compressed=st.booleans())
partitions = st.integers(0, MAX_PARTITIONS - 1)
follows = st.lists(st.builds(Followed, partitions, inodes), max_size=5).map(tuple)
claims = st.builds(Origin, **agents, follows=follows, moved=st.none() | partitions)


def section(size: int = 9, file_id: str = "f", path: str = "/x", **more: Any) -> Section:
    return Section(path, Span(file_id, 0, size), size, min(size, 1), **more)


GOOD = encode_origin(Origin("1-a", 5, (section(identity=Identity(1, 0, "", 0, "")),)))
(ENTRY,) = json.loads(GOOD["Log-Spans"])
NEEDED = ("file", "id", "start", "end", "size", "lines")


def spans(*entries: object) -> dict[str, str]:
    return {**GOOD, "Log-Spans": json.dumps(entries)}


@given(origins | claims)
def test_an_origin_survives_encoding_and_no_path_breaks_its_header(origin: Origin) -> None:
    headers = encode_origin(origin)

    assert decode_origin(headers) == origin
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert all(value == value.strip() for value in headers.values())
    taken = len(headers.get("Log-Spans", "["))
    assert taken <= 1 + sum(map(estimate_size, origin.sections))


@pytest.mark.parametrize("headers", [None, {}, {"Nats-Msg-Id": "1"}, {"Log-Read-At": "1"}, ZSTD])
def test_a_message_without_our_headers_has_no_origin(headers: dict[str, str] | None) -> None:
    assert decode_origin(headers) is None


HEADERS = {
    "Log-Agent": ("", "1" * (MAX_ID_BYTES + 1), "1-é", "1 a"),
    "Log-Read-At": ("", "soon", "-1", str(2**64)),
    "Content-Encoding": ("gzip",),
    "Log-Follows": ("", "1:", ":1", "x:1", f"{MAX_PARTITIONS}:1", "1:2"),  # beside sections
    "Log-Moved": ("", "-1", str(MAX_PARTITIONS), "1"),
    "Log-Spans": ("", "[]", "{}", "[null]", '["f:0-9"]', GOOD["Log-Spans"] + "x"),
}
VALUES: dict[str, tuple[object, ...]] = {
    "start": (10, -1, True),
    "end": (9.0, 2**63),
    "size": (8, 11, -1),
    "lines": (10, -1),
    "id": ("", "a b", "é", "f" * (MAX_ID_BYTES + 1)),
    "file": (None, "\ud800", "%ff" * (MAX_PATH_BYTES + 1), "%" * 60_000),
    "identity": (None, "x:0::0:", f"{2**64}:0::0:", f"1:0:{'a' * 129}:0:"),
}
ENTRIES = [
    *({**ENTRY, name: value} for name, values in VALUES.items() for value in values),
    *({key: value for key, value in ENTRY.items() if key != name} for name in NEEDED),
    {**ENTRY, **dict.fromkeys(("end", "size"), MAX_LINES_BYTES - 8)},  # too much for two entries
    {**ENTRY, "size": 11, "filtered": True},
    {**ENTRY, "size": 8, "filtered": 1},
]
HOSTILE = [
    "[" * 65_536,
    f"[{'9' * 60_000}]",
    json.dumps([ENTRY]).replace('"start": 0', f'"start": {"9" * 4000}'),
    json.dumps([ENTRY]).replace('"end": 9', '"end": NaN'),
    '[{"file":"\\ud800"}]',
    "\udcff" * 65_536,
    f"[{','.join(['{}'] * 20_000)}]",
]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *((header, value) for header, values in HEADERS.items() for value in values),
        *(("Log-Spans", json.dumps([ENTRY, entry])) for entry in ENTRIES),
        *(("Log-Spans", text) for text in HOSTILE),
    ],
    ids=map(str, count()),
)
def test_bad_headers_are_refused_with_a_short_reason(header: str, value: str) -> None:
    assert decode_origin(spans(ENTRY, ENTRY)) is not None
    with pytest.raises(MalformedMessage) as refused:
        decode_origin({**GOOD, header: value})

    assert len(str(refused.value).encode()) < 1500


@pytest.mark.nats
async def test_nats_server_accepts_the_largest_headers(connection: Connection) -> None:
    many = (section(path="x" * MAX_PATH_BYTES),) * 14
    origin = Origin("1" * MAX_ID_BYTES, 2**64 - 1, (*many, section(path="")), compressed=True)
    missing = MAX_SPANS_BYTES - len(encode_origin(origin)["Log-Spans"])
    origin = replace(origin, sections=(*many, section(path="x" * missing)))
    expected = {"Nats-Expected-Last-Subject-Sequence": "0", "Nats-Expected-Stream": "LOGS"}

    answer = await connection.ask("logs.p0.web01", b"", encode_origin(origin) | expected)

    assert len(encode_origin(origin)["Log-Spans"]) == MAX_SPANS_BYTES
    assert answer["seq"] == 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
entries = st.dictionaries(st.sampled_from([*sorted(ENTRY), "filtered", "x"]), anything).map(
    lambda changed: {**ENTRY, **changed}
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "Log-Agent": st.text() | st.just("1-a"),
            "Log-Read-At": st.text() | st.just("5"),
            "Log-Spans": st.text() | anything.map(json.dumps) | st.lists(entries).map(json.dumps),
            "Content-Encoding": st.text() | st.just("zstd"),
        },
    )
)
def test_random_headers_are_read_or_refused(headers: dict[str, str]) -> None:
    try:
        found = decode_origin(headers)
    except MalformedMessage as error:
        str(error).encode()  # a reason is text that can be written down
        return
    assert found is None or decode_origin(encode_origin(found)) == found


@given(st.lists(st.binary(max_size=9)))
def test_each_section_gets_its_part_of_the_lines(parts: list[bytes]) -> None:
    found = tuple(section(len(part), f"f{number}") for number, part in enumerate(parts))
    origin, lines = Origin("1-a", 5, found), b"".join(parts)

    assert split_sections(origin, lines) == list(zip(found, parts, strict=True))
    with pytest.raises(MalformedMessage, match=f"of {len(lines)} bytes, lines of {len(lines) + 1}"):
        split_sections(origin, lines + b"x")
    if lines:
        with pytest.raises(MalformedMessage):
            split_sections(origin, lines[:-1])


@given(st.binary(min_size=1))
def test_lines_survive_both_encodings(lines: bytes) -> None:
    frame = zstandard.ZstdCompressor().compress(lines)

    assert decode_payload(ZSTD, frame) == lines
    assert decode_payload(None, lines) == lines


@given(st.binary())
def test_a_damaged_frame_is_refused(garbage: bytes) -> None:
    frame = zstandard.ZstdCompressor().compress(b"line\n" * 100)

    for damaged in (frame[:-1], b"\x00" + garbage, frame + b"x"):
        with pytest.raises(MalformedMessage):
            decode_payload(ZSTD, damaged)


def test_a_frame_of_unknown_or_too_large_size_is_refused() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    undeclared = packer.compress(b"line\n") + packer.flush()

    largest = random.Random(1).randbytes(MAX_LINES_BYTES)
    assert decode_payload(ZSTD, zstandard.compress(largest, 1)) == largest
    for frame in (zstandard.compress(largest + b"x", 1), undeclared):
        with pytest.raises(MalformedMessage, match="over"):
            decode_payload(ZSTD, frame)


def as_if_of(size: int, data: bytes = b"", window: int | None = None) -> bytes:
    """Return a frame of data that says it holds so many bytes, or so large a window."""
    frame = zstandard.compress(data)
    blocks = frame[zstandard.frame_header_size(frame) :]
    told = b"\xa0" if window is None else bytes([0x80, window << 3])
    return zstandard.FRAME_HEADER + told + size.to_bytes(4, "little") + blocks


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
FRAME = zstandard.compress(b"line\n")
DICTIONARY = zstandard.ZstdCompressionDict(b"2026-11-20 a line of a log \n" * 40)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(zstandard.compress(bytes(MAX_LINES_BYTES)), id="a bomb"),
        pytest.param(zstandard.compress(bytes(ALWAYS_BYTES + 1)), id="a small one"),
        pytest.param(zstandard.compress(bytes(ALWAYS_BYTES)) + bytes(900), id="padded"),
        pytest.param(as_if_of(5, b"more\nthan that\n"), id="says too little"),
        pytest.param(as_if_of(0, b"line\n"), id="says nothing is in it"),
        pytest.param(as_if_of(60_000, b"line\n"), id="says too much"),
        pytest.param(as_if_of(60_000), id="says much and holds nothing"),
        pytest.param(as_if_of(60_000, b"line\n", window=21), id="and needs a window of 2 GiB"),
        pytest.param(zstandard.compress(b""), id="empty"),
        pytest.param(zstandard.compress(b"") + FRAME, id="a frame behind an empty one"),
        pytest.param(FRAME + FRAME, id="two frames"),
        pytest.param(SKIPPABLE, id="a skippable frame"),
        pytest.param(SKIPPABLE + FRAME, id="a skippable frame first"),
        pytest.param(FRAME + SKIPPABLE, id="a skippable frame behind"),
        pytest.param(
            zstandard.ZstdCompressor(dict_data=DICTIONARY).compress(b"2026-11-20 a line\n"),
            id="with a dictionary",
        ),
    ],
)
def test_a_frame_that_no_shipper_makes_is_refused_without_using_memory(frame: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode_payload(ZSTD, frame)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_a_ratio_that_a_log_may_have_is_accepted() -> None:
    noise = random.Random(2).randbytes(4000)

    for lines in (bytes(ALWAYS_BYTES), noise + bytes(255 * 4000)):
        assert decode_payload(ZSTD, zstandard.compress(lines)) == lines
    with pytest.raises(MalformedMessage, match="256 times"):
        decode_payload(ZSTD, zstandard.compress(noise + bytes(300 * 4000)))
