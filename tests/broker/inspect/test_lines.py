"""Lines as they are shown: each behind the name of its host, and none of them acting on a terminal."""

import pytest

from broker.inspect.message import safe
from broker.inspect.tail import as_shown, last_lines


def test_without_prefixes_bytes_are_what_they_were() -> None:
    for lines in (b"a\nb\n", b"\xff\x1b[2J\n", b"", b"c\r\n", b"part of a line"):
        assert as_shown("web01", lines, prefixed=False, for_terminal=False) == lines


def test_every_line_names_its_host_and_none_is_added() -> None:
    shown = as_shown("web01", b"a\n\nb\n", prefixed=True, for_terminal=False)

    assert shown == b"web01: a\nweb01: \nweb01: b\n"
    assert as_shown("web01", b"", prefixed=True, for_terminal=False) == b""


def test_a_host_whose_subject_holds_codes_does_not_act_on_a_terminal_either() -> None:
    shown = as_shown("logs.\x1b[2J.w\udcff", b"a\n", prefixed=True, for_terminal=True)

    assert shown == rb"logs.\x1b[2J.w\xff: a" + b"\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param(b"a\tb\n", b"a\tb\n", id="tabs and newlines"),
        pytest.param("Grüße €\n".encode(), "Grüße €\n".encode(), id="letters"),
        pytest.param(b"\x1b]0;owned\x07\n", rb"\x1b]0;owned\x07" + b"\n", id="escape codes"),
        pytest.param("\x9b31m\n".encode(), rb"\x9b31m" + b"\n", id="codes of one character"),
        pytest.param(b"\x9b31m\n", rb"\x9b31m" + b"\n", id="codes that are no UTF-8"),
        pytest.param(b"progress 10%\r\n", rb"progress 10%\r" + b"\n", id="a return"),
        pytest.param("a\u202eb\n".encode(), rb"a\u202eb" + b"\n", id="written backwards"),
    ],
)
def test_nothing_acts_on_a_terminal(raw: bytes, shown: bytes) -> None:
    assert safe(raw) == shown


@pytest.mark.parametrize(
    ("most", "left"),
    [(0, b""), (1, b"c\n"), (2, b"b\nc\n"), (3, b"a\nb\nc\n"), (9, b"a\nb\nc\n")],
)
def test_the_last_lines_are_counted_from_the_end(most: int, left: bytes) -> None:
    assert last_lines(b"a\nb\nc\n", most) == left


def test_a_last_line_without_a_newline_counts() -> None:
    assert last_lines(b"a\nb", 1) == b"b"
