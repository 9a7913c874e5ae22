"""What is gone by of headers alone, of a message whose payload nobody has."""

import pytest

from broker.client.arrived import Arrived
from broker.looking.told import told
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.looking.conftest import without_payload


def _message(size: int, *sections: Section, compressed: bool = False, **more: str) -> Arrived:
    headers = encode_origin(Origin("1-a", 5, sections, compressed))
    return without_payload("logs.p0.web01", headers | more, size)


APP = Section("/app.log", Span("1", 0, 100), 100, 3)
DB = Section("/db.log", Span("2", 50, 100), 20, 2, filtered=True)


def test_a_message_has_the_lines_and_files_of_all_its_sections() -> None:
    found = told(_message(120, APP, DB))

    assert found is not None
    assert (found.lines, found.size, found.agent) == (5, 120, "1-a")
    assert found.files == ("/app.log", "/db.log")


@pytest.mark.parametrize("size", [0, 100, 119, 121])
def test_sections_that_are_not_the_payload_are_set_aside_unless_they_are_compressed(
    size: int,
) -> None:
    assert told(_message(size, APP, DB)) is None
    packed = told(_message(size, APP, DB, compressed=True))
    assert packed is not None
    assert (packed.lines, packed.size) == (5, size)


def test_a_claim_has_no_lines_and_one_with_a_payload_is_set_aside() -> None:
    claim = told(_message(0))

    assert claim is not None
    assert (claim.lines, claim.files, claim.agent) == (0, (), "1-a")
    assert told(_message(7)) is None


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [({}, True), ({"Content-Encoding": "zstd"}, True), ({"Content-Encoding": "gzip"}, False)],
)
def test_another_clients_message_is_one_line_of_no_file(
    headers: dict[str, str], is_taken: bool
) -> None:
    found = told(without_payload("logs.p0.web01", headers, 9))

    assert (found is not None) == is_taken
    assert found is None or (found.lines, found.size, found.files) == (1, 9, ())


def test_headers_that_break_their_rules_are_set_aside() -> None:
    assert told(_message(100, APP, **{"Log-Spans": "[]"})) is None


@pytest.mark.parametrize("size", ["²", "9" * 5000, "99999999999999", "-1", ""])
@pytest.mark.parametrize("cut", [0, 2])
def test_a_size_is_the_servers_word_whatever_the_client_wrote(size: str, cut: int) -> None:
    """The server replaces the last two bytes of a header block, which a client need not end as it ought to."""
    head = f"NATS/1.0\r\nNats-Msg-Size: {size}\r\nFoo: xx".encode()
    message = Arrived(
        "logs.p0.evil", "", head[: len(head) - cut] + b"Nats-Msg-Size: 7\r\n\r\n", b""
    )

    found = told(message)

    assert found is not None
    assert (found.lines, found.size) == (1, 7)


@pytest.mark.parametrize("size", ["²", "9" * 5000, "99999999999999", "-1", ""])
def test_a_size_that_no_server_wrote_is_none(size: str) -> None:
    head = f"NATS/1.0\r\nNats-Msg-Size: {size}\r\nFoo: xx".encode()

    assert Arrived("logs.p0.evil", "", head, b"").size == 0
    assert Arrived("logs.p0.evil", "", head + b"\r\n\r\n", b"").size == 0
