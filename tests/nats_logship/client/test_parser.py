"""The parser returns the same messages and lines, however the bytes were cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.client.parser import MAX_LINE, MAX_MESSAGE, Control, Malformed, Parser, Received
from nats_logship.wire.delivery import RawMessage

ODD_SPACES = "\x0b\x0c\x1c\x85\xa0"  # they belong to the word that they are in
HEAD = b"NATS/1.0\r\nLog-Agent: a: b\r\n\r\n"
Item = Received | Control


def message_on_wire(item: Received) -> bytes:
    message = item.message
    tokens = [message.subject, str(item.subscription), message.reply]
    if message.head:
        tokens.append(str(len(message.head)))
    size = len(message.head) + len(message.data)
    line = " ".join(["HMSG" if message.head else "MSG", *tokens, str(size)])
    body = message.head + message.data
    return line.encode("utf-8", "surrogateescape") + b"\r\n" + body + b"\r\n"


def on_wire(item: Item) -> bytes:
    if isinstance(item, Received):
        return message_on_wire(item)
    return item.name.encode() + (b" " if item.text else b"") + item.text + b"\r\n"


tokens = st.text(st.sampled_from("a.B7*>ä\udcff" + ODD_SPACES), min_size=1, max_size=12)
bodies = st.one_of(
    st.binary(max_size=50), st.sampled_from([b"\r\n", b"PING\r\n", b"MSG a 1 5\r\n", b"x" * 5000])
)
raw = st.builds(RawMessage, tokens, st.just("") | tokens, st.sampled_from([b"", HEAD]), bodies)
messages = st.builds(Received, st.integers(0, 10**17), raw)
controls = st.sampled_from(
    [
        *(Control("PING", b""), Control("PONG", b""), Control("+OK", b"")),
        *(Control("-ERR", b""), Control("-ERR", b"'it\xff is'"), Control("INFO", b'{"a": 1}')),
    ]
)
streams = st.lists(st.one_of(messages, controls), max_size=12)


def read(pieces: list[bytes]) -> tuple[list[Item], bool]:
    """Return what is complete, and whether the rest is malformed."""
    parser, found = Parser(), list[Item]()
    try:
        for piece in pieces:
            for item in parser.read(piece):
                found.append(item)
    except Malformed:
        return found, True
    return found, False


def cut(data: st.DataObject, text: bytes) -> list[bytes]:
    cuts = st.lists(st.integers(0, len(text)), max_size=30)
    ends = [0, *sorted(data.draw(cuts)), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


@given(streams, st.data())
def test_messages_are_read_however_the_bytes_are_cut(sent: list[Item], data: st.DataObject) -> None:
    text = b"".join(map(on_wire, sent))

    assert read(cut(data, text)) == (sent, False)
    assert read([text[at : at + 1] for at in range(len(text))]) == (sent, False)


PIECES = (
    *(b"MSG", b"HMSG", b"PING", b"INFO", b"-ERR", b"\r\n", b"\r", b"\n", b" ", b"\t", b"0" * 5000),
    *(b"a", b"1", b"-1", b"5", b"MSG a 1 3\r\nabc\r\n", b"HMSG a 1 2 3\r\nabc\r\n", b"PONG\r\n"),
    b"x" * MAX_LINE,
)
piece = st.binary(max_size=6) | st.sampled_from(PIECES)
garbage = st.lists(piece, max_size=20).map(b"".join)


@given(garbage, st.data())
def test_garbage_is_read_the_same_however_it_is_cut(text: bytes, data: st.DataObject) -> None:
    assert read(cut(data, text)) == read([text])


@pytest.mark.parametrize(
    "line",
    [
        *(b"NONSENSE", b"", b" PING", b"PINGS", b"PING 1", b"ping", b"+OK 1", b"-ERROR", b"\xff"),
        *(b"INFO{}", b"INFO\t{\r}", b"PING\n", b"MSG", b"MSG a", b"MSG a 1", b"MSG a 1 x"),
        *(b"MSG a x 1", b"MSG a 1 -1", b"MSG a -1 1", b"MSG a 1 +1", b"MSG a 1 1_0"),
        *(b"MSG a 1 r 1 2", b"MSG a 1 1.0", b"MSG a\x0b1 1", b"HMSG a 1 1", b"HMSG a 1 1 1 x"),
        *(b"HMSG a 1 -1 1", b"HMSG a 1 2 1", b"HMSG a 1 r s 1 1", b"MSG a 1 \xd9\xa1"),
        *(b"MSG a 1 %d" % (MAX_MESSAGE + 1), b"MSG a 1 99999999999999999999"),
        *(b"MSG a 1 " + b"9" * 5000, b"MSG a " + b"9" * 5000 + b" 1"),
        b"HMSG a 1 0 %d" % (MAX_MESSAGE + 1),
    ],
)
def test_a_malformed_line_is_refused_after_the_items_before_it(line: bytes) -> None:
    assert read([b"PING\r\n" + line + b"\r\nPONG\r\n"]) == ([Control("PING", b"")], True)


@pytest.mark.parametrize("text", [b"MSG a 1 2\r\nabc\r\n", b"HMSG a 1 1 2\r\nabc\r\n"])
def test_a_message_longer_than_announced_is_refused(text: bytes) -> None:
    assert read([text]) == ([], True)


@pytest.mark.parametrize("start", [b"", b"INFO ", b"-ERR '", b"PING ", b"MSG a 1 ", b"HMSG "])
@pytest.mark.parametrize("rest", [b"x", b" ", b"1", b"\r", b"\n"])
def test_a_line_without_an_end_is_refused_before_it_needs_memory(start: bytes, rest: bytes) -> None:
    longest = start + rest * (MAX_LINE - len(start))

    assert read([longest[at : at + 1000] for at in range(0, MAX_LINE, 1000)]) == ([], True)


def test_the_longest_line_is_read_and_a_longer_one_refused() -> None:
    text = b"x" * (MAX_LINE - len(b"INFO \r\n"))

    assert read([b"INFO " + text + b"\r\n"]) == ([Control("INFO", text)], False)
    assert read([b"INFO x" + text + b"\r\n"]) == ([], True)


def test_blanks_and_tabs_separate_tokens() -> None:
    # for messages of its own nats-server writes two blanks where there is no reply
    received = [Received(7, RawMessage("a", "r", b"", b"xyz")), Control("PING", b"")]

    assert read([b"MSG \ta\t7  r\t 3 \r\nxyz\r\nPING \r\n"]) == (received, False)


def test_the_parser_is_amid_a_message_only_after_its_line() -> None:
    parser, seen = Parser(), []
    for piece in (b"PING\r\nMS", b"G a 1 3\r\n", b"abc\r", b"\n", b"MSG a 1 3\r\nabc\r\nPI"):
        list(parser.read(piece))
        seen.append(parser.is_amid_message)

    assert seen == [False, True, True, False, False]
