"""What the headers of a message say where its payload is not read."""

import pytest

from broker.inspect.message import headers_of, nanoseconds, rfc3339
from broker.wire.delivery import Arrived
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.inspect.conftest import without_payload


def _message(size: int, *sections: Section, compressed: bool = False, **more: str) -> Arrived:
    headers = encode_origin(Origin("1-a", 5, sections, compressed))
    return without_payload("logs.p0.web01", headers | more, size)


APP = Section("/app.log", Span("1", 0, 100), 100, 3)
DB = Section("/db.log", Span("2", 50, 100), 20, 2, filtered=True)


def test_a_message_has_the_lines_and_files_of_all_its_sections() -> None:
    found = headers_of(_message(120, APP, DB))

    assert found is not None
    assert (found.lines, found.size, found.agent) == (5, 120, "1-a")
    assert found.files == ("/app.log", "/db.log")


@pytest.mark.parametrize("size", [0, 100, 119, 121])
def test_sections_that_are_not_the_payload_are_quarantined_unless_they_are_compressed(
    size: int,
) -> None:
    assert headers_of(_message(size, APP, DB)) is None
    packed = headers_of(_message(size, APP, DB, compressed=True))
    assert packed is not None
    assert (packed.lines, packed.size) == (5, size)


def test_a_claim_has_no_lines_and_one_with_a_payload_is_quarantined() -> None:
    claim = headers_of(_message(0))

    assert claim is not None
    assert (claim.lines, claim.files, claim.agent) == (0, (), "1-a")
    assert headers_of(_message(7)) is None


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [({}, True), ({"Content-Encoding": "zstd"}, True), ({"Content-Encoding": "gzip"}, False)],
)
def test_another_clients_message_is_one_line_of_no_file(
    headers: dict[str, str], is_taken: bool
) -> None:
    found = headers_of(without_payload("logs.p0.web01", headers, 9))

    assert (found is not None) == is_taken
    assert found is None or (found.lines, found.size, found.files) == (1, 9, ())


def test_headers_that_break_their_rules_are_quarantined() -> None:
    assert headers_of(_message(100, APP, **{"Log-Spans": "[]"})) is None


@pytest.mark.parametrize("size", ["²", "9" * 5000, "99999999999999", "-1", ""])
@pytest.mark.parametrize("cut", [0, 2])
def test_a_size_is_the_servers_word_whatever_the_client_wrote(size: str, cut: int) -> None:
    """The server replaces the last two bytes of a header block, which a client need not end as it ought to."""
    head = f"NATS/1.0\r\nNats-Msg-Size: {size}\r\nFoo: xx".encode()
    message = Arrived(
        "logs.p0.evil", "", head[: len(head) - cut] + b"Nats-Msg-Size: 7\r\n\r\n", b""
    )

    found = headers_of(message)

    assert found is not None
    assert (found.lines, found.size) == (1, 7)


@pytest.mark.parametrize("size", ["²", "9" * 5000, "99999999999999", "-1", ""])
def test_a_size_that_no_server_wrote_is_none(size: str) -> None:
    head = f"NATS/1.0\r\nNats-Msg-Size: {size}\r\nFoo: xx".encode()

    assert Arrived("logs.p0.evil", "", head, b"").size == 0
    assert Arrived("logs.p0.evil", "", head + b"\r\n\r\n", b"").size == 0


@pytest.mark.parametrize(
    "time",
    ["2026-11-21T16:50:57.123456789Z", "2026-11-21T17:50:57.123456789+01:00"],
)
def test_times_of_the_server_are_read_to_the_nanosecond(time: str) -> None:
    assert nanoseconds(time) % 1_000_000_000 == 123456789
    assert rfc3339(nanoseconds(time)) == "2026-11-21T16:50:57.123456Z"


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    assert rfc3339(10**22) == f"{10**22} ns"
