import pytest

from broker.inspect.message import safe
from broker.inspect.tail import LineOutput, last_lines


def test_without_prefixes_bytes_are_what_they_were() -> None:
    run = LineOutput(prefixed=False, for_terminal=False)
    parts = [b"a\nb\n", b"\xff\x1b[2J\n", b"", b"c\r\n"]

    assert b"".join(run.add("web01", "f", lines) for lines in parts) == b"".join(parts)


def test_every_line_names_its_host_and_none_is_added() -> None:
    run = LineOutput(prefixed=True, for_terminal=False)

    shown = (
        run.add("web01", "f", b"a\n\nb\n") + run.add("db.x", "f", b"c\n") + run.add("z", "f", b"")
    )

    assert shown == b"web01: a\nweb01: \nweb01: b\ndb.x: c\n"


def test_a_host_whose_subject_holds_codes_does_not_act_on_a_terminal_either() -> None:
    shown = LineOutput(prefixed=True, for_terminal=True).add("logs.\x1b[2J.w\udcff", "f", b"a\n")

    assert shown == rb"logs.\x1b[2J.w\xff: a" + b"\n"


def test_pieces_of_one_line_stay_one_line_unless_something_comes_between() -> None:
    run = LineOutput(prefixed=True, for_terminal=False)

    together = run.add("w", "f", b"long ") + run.add("w", "f", b"line\nnext\n")
    between = run.add("w", "f", b"long ") + run.add("v", "f", b"x\n") + run.add("w", "f", b"line\n")

    assert together == b"w: long line\nw: next\n"
    assert between == b"w: long \nv: x\nw: line\n"


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
