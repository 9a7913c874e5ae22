import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from broker.block import (
    MAX_ID_BYTES,
    MAX_LINES_BYTES,
    Identity,
    MalformedBlock,
    Origin,
    Span,
    decode_origin,
    decode_payload,
    encode_origin,
    file_of,
    predecessor_of,
)
from broker.topology import MAX_PAYLOAD
from shipper.publishing.rounds import LONE_SIZE
from shipper.settings import ShipperSettings

OURS = {"Log-Agent": "a"}

numbers = st.integers(0, 10**18)
hexes = st.text("0123456789abcdef", max_size=32)
spans = st.builds(
    lambda file, start, length: Span(file, start, start + length),
    st.text("0123456789abcdef:-", min_size=1, max_size=128),
    numbers,
    st.integers(0, 10**9),
)
inodes = st.integers(0, 2**64 - 1)
identities = st.builds(Identity, inodes, st.integers(0, 1024), hexes, st.integers(0, 1024), hexes)
paths = st.binary(max_size=80).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
origins = st.builds(
    Origin,
    agent=st.text("0123456789abcdef-", min_size=1, max_size=128),
    file=paths,
    span=spans,
    identity=st.none() | identities,
    lines=numbers,
    read_at=numbers,
    compressed=st.booleans(),
    filtered=st.booleans(),
)


@given(origins)
def test_an_origin_comes_back_as_it_was_sent(origin: Origin) -> None:
    assert decode_origin(encode_origin(origin)) == origin


def test_an_inode_of_64_bits_comes_back() -> None:
    identity = Identity(2**64 - 1, 4, "ab", 0, "")
    origin = Origin("1-a", "/x", Span("f", 0, 9), identity, 1, 5)

    assert Identity.parse(str(identity)) == identity
    assert decode_origin(encode_origin(origin)) == origin


@given(origins)
def test_no_path_can_break_out_of_its_header(origin: Origin) -> None:
    for value in encode_origin(origin).values():
        assert value.isascii()
        assert value.isprintable()
        assert value == value.strip()


def test_a_claim_has_no_span_and_comes_back_as_a_claim() -> None:
    claim = Origin("1-a", "", None, None, 0, 5)

    assert decode_origin(encode_origin(claim)) == claim
    assert claim.is_claim


@pytest.mark.parametrize("headers", [None, {}, {"Log-File": "/x"}, {"Nats-Msg-Id": "1"}])
def test_a_message_without_our_headers_is_nobodys(headers: dict[str, str] | None) -> None:
    assert decode_origin(headers) is None


GOOD = encode_origin(Origin("1-a", "/x", Span("f", 0, 9), Identity(1, 0, "", 0, ""), 1, 5))


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Log-Span", "f:9-0"),
        ("Log-Span", "f:0"),
        ("Log-Span", ":0-9"),
        ("Log-Span", "f:-1-9"),
        ("Log-Span", "f:0-99999999999999999999"),
        ("Log-Span", f"f:0-{2**63}"),
        ("Log-Span", "f:\u0660-9"),
        ("Log-Identity", "1:2:3"),
        ("Log-Identity", "x:0::0:"),
        ("Log-Identity", f"{2**64}:0::0:"),
        ("Log-Identity", "000000000000000000001:0::0:"),
        ("Log-Lines", ""),
        ("Log-Lines", "-1"),
        ("Log-Read-At", "soon"),
        ("Content-Encoding", "gzip"),
        ("Log-Span", f"{'f' * 129}:0-9"),
        ("Log-Span", f"{'é' * 65}:0-9"),
        ("Log-Agent", "1" * 129),
        ("Log-Identity", f"1:0:{'a' * 129}:0:"),
        ("Log-Identity", f"1:0::0:{'a' * 129}"),
    ],
)
def test_a_header_that_does_not_hold_together_is_malformed(header: str, value: str) -> None:
    with pytest.raises(MalformedBlock):
        decode_origin({**GOOD, header: value})


def test_what_is_longer_than_any_path_is_cut_with_a_digest_behind() -> None:
    paths = ["/x" * 2048, "/x" * 2049, "/x" * 30_000, "/x" * 30_000 + "é"]

    found = [file_of({"Log-File": path}) for path in paths]

    assert found[0] == paths[0]
    assert len(set(found)) == 4
    assert all(len(file.encode()) <= 4096 for file in found)
    assert all(file.startswith("/x/x") for file in found)


def test_a_file_id_is_as_long_as_may_be_or_cannot_be_made() -> None:
    span = Span("f" * MAX_ID_BYTES, 0, 9)

    assert Span.parse(str(span)) == span
    with pytest.raises(MalformedBlock, match="129 bytes, more than 128"):
        Span("f" * (MAX_ID_BYTES + 1), 0, 9)


@pytest.mark.parametrize("header", ["Log-Span", "Log-Lines", "Log-Read-At", "Content-Encoding"])
def test_the_reason_why_a_header_is_refused_is_short(header: str) -> None:
    with pytest.raises(MalformedBlock) as refused:
        decode_origin({**GOOD, header: "x" * 60_000})

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("header", ["Log-Span", "Log-Lines", "Log-Read-At"])
def test_a_missing_header_is_malformed(header: str) -> None:
    with pytest.raises(MalformedBlock):
        decode_origin({key: value for key, value in GOOD.items() if key != header})


@given(st.dictionaries(st.sampled_from(sorted([*GOOD, "Content-Encoding"])), st.text()))
def test_hostile_headers_are_read_or_refused_and_nothing_else(headers: dict[str, str]) -> None:
    try:
        decode_origin(headers)
    except MalformedBlock:
        return


@given(st.binary())
def test_lines_come_back_from_both_encodings(lines: bytes) -> None:
    folded = zstandard.ZstdCompressor().compress(lines)

    assert decode_payload({"Content-Encoding": "zstd"}, folded) == lines
    assert decode_payload(None, lines) == lines


@given(st.binary())
def test_a_damaged_frame_is_malformed_and_never_half_read(garbage: bytes) -> None:
    folded = zstandard.ZstdCompressor().compress(b"line\n" * 100)

    with pytest.raises(MalformedBlock):
        decode_payload({"Content-Encoding": "zstd"}, folded[:-1])
    with pytest.raises(MalformedBlock):
        decode_payload({"Content-Encoding": "zstd"}, b"\x00" + garbage)


def test_a_damaged_frame_does_no_harm_to_the_next_of_its_unfolder() -> None:
    zstd, unfolder = {"Content-Encoding": "zstd"}, zstandard.ZstdDecompressor()
    first, second = zstandard.compress(b"first\n" * 99), zstandard.compress(b"second\n")

    with pytest.raises(MalformedBlock):
        decode_payload(zstd, first[:-2], unfolder)

    assert decode_payload(zstd, second, unfolder) == b"second\n"
    assert decode_payload(zstd, first, unfolder) == b"first\n" * 99


def test_a_frame_that_unfolds_to_too_much_is_refused_before_it_is_unfolded() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(MAX_LINES_BYTES + 1))

    with pytest.raises(MalformedBlock, match="over"):
        decode_payload({"Content-Encoding": "zstd"}, bomb)


def test_the_largest_block_of_a_shipper_may_be_unfolded() -> None:
    longest_line = ShipperSettings.model_fields["max_line"].metadata

    most = max(LONE_SIZE, *(limit.le for limit in longest_line if hasattr(limit, "le")))

    assert most + 1 <= MAX_LINES_BYTES <= MAX_PAYLOAD


@pytest.mark.parametrize("path", [" ", "  ", " /a", "/a ", " /a b "])
def test_spaces_at_the_ends_of_a_path_survive(path: str) -> None:
    origin = Origin("1-a", path, Span("f", 0, 1), Identity(1, 0, "", 0, ""), 1, 5)

    value = encode_origin(origin)["Log-File"]

    assert value == value.strip()
    assert decode_origin(encode_origin(origin)) == origin


@pytest.mark.parametrize(
    ("headers", "predecessor"),
    [
        pytest.param(None, None, id="no headers"),
        pytest.param({"Nats-Expected-Last-Subject-Sequence": "5"}, None, id="a stranger's"),
        pytest.param({"Log-Agent": "a"}, None, id="not said"),
        pytest.param({"Nats-Expected-Last-Subject-Sequence": "0"} | OURS, 0, id="the first"),
        pytest.param({"Nats-Expected-Last-Subject-Sequence": "5"} | OURS, 5, id="a round's first"),
        pytest.param({"Nats-Expected-Last-Subject-Sequence": "-5"} | OURS, None, id="no number"),
        pytest.param({"Nats-Batch-Sequence": "2"} | OURS, 8, id="a later one of a batch"),
        pytest.param(
            {"Nats-Batch-Sequence": "2", "Nats-Stream-Source": "x 5"} | OURS, None, id="elsewhere"
        ),
    ],
)
def test_a_message_names_its_predecessor_on_the_subject(
    headers: dict[str, str] | None, predecessor: int | None
) -> None:
    assert predecessor_of(headers, 9) == predecessor
