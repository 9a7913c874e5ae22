"""Lines of several files in one output: unfinished lines get a newline, UTF-16 keeps its bytes."""

import pytest

from nats_logship.wire.endings import Endings, OpenLine

ONE, OTHER = ("web01", "f1"), ("web01", "f2")


def joined(*pieces: tuple[tuple[str, str], bytes, int]) -> bytes:
    """Return the output for pieces, each with its source and end; a restart is between any two."""
    output, endings = b"", Endings()
    for source, lines, end in pieces:
        output += endings.join("live", source, lines, end=end, is_adjacent=True)
        texts = endings.as_texts()
        endings = Endings({name: OpenLine.parse("web01", text) for name, text in texts if text})
    return output


def rounds(
    source: tuple[str, str], text: str, encoding: str
) -> list[tuple[tuple[str, str], bytes, int]]:
    """Return a file as a shipper sends it: whole lines, then what is behind the last byte 0x0a."""
    data = text.encode(encoding)
    last = data.rfind(b"\n") + 1
    pieces = [(source, data[:last], last), (source, data[last:], len(data))]
    return [piece for piece in pieces if piece[1]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ["one\n", "Grüße €\n2026 文字\n", "\n\n"])
def test_whole_lines_of_two_files_are_joined_without_a_change(encoding: str, text: str) -> None:
    both = joined(*rounds(ONE, text, encoding), *rounds(OTHER, "first\n" + text, encoding))

    assert both == text.encode(encoding) + ("first\n" + text).encode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_an_unfinished_line_is_ended_by_a_newline_of_its_encoding(encoding: str) -> None:
    both = joined(*rounds(ONE, "one\ntwo", encoding), *rounds(OTHER, "three\n", encoding))

    assert both.decode(encoding) == "one\ntwo\nthree\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["one\n", "one\ntwo"])
def test_a_line_of_another_encoding_is_unchanged(encoding: str, text: str) -> None:
    both = joined(*rounds(ONE, text, encoding), (OTHER, b"plain\n", 6))

    assert both.endswith(b"\nplain\n")


def test_a_continued_line_gets_no_newline() -> None:
    assert joined((ONE, b"a", 1), (ONE, b"b", 2), (ONE, b"c\n", 4)) == b"abc\n"


def test_a_line_after_a_gap_is_another_line() -> None:
    endings = Endings()
    endings.join("live", ONE, b"a", end=1, is_adjacent=True)

    assert endings.join("live", ONE, b"b\n", end=9, is_adjacent=False) == b"\nb\n"
