"""Headers are read as nats-py reads them, whatever a publisher wrote."""

from hypothesis import example, given
from hypothesis import strategies as st
from nats.aio.client import Client

from broker.connecting.client import BrokerClient

PIECES = st.sampled_from(
    [b"Log-Span", b"A", b":", b": ", b"\r\n", b"\r", b"\n", b" ", b"\t", "ü".encode(), b"\xff", b""]
)


@given(st.lists(PIECES | st.binary(max_size=5), max_size=12).map(b"".join))
@example(b"A: b\r\nA:c\r\nB b: c\r\n: d\r\nno colon\r\nC:\r\n\r\n")
def test_headers_are_those_that_the_library_would_find(raw: bytes) -> None:
    assert BrokerClient._parse_header_lines(raw) == Client._parse_header_lines(raw)
