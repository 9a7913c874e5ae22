"""`--match` finds the same lines in a table, in received files and in the stream."""

import re
from datetime import UTC, datetime

import pytest

from broker.console.request import parse_line_request
from broker.inspect.tail import TailOptions
from nats_logship.client.line_search import LineFilter
from nats_logship.wire.expressions import expression, matching_runs
from receiver.search.found import Found
from tests.receiver.partition import Partition
from tests.receiver.search.searching import found
from tests.receiver.table.tabled import Tabled

EXPRESSIONS = [
    *("^.{3}$", "[é]", "(?i)É", "É", "^..$", "[^a]{3}", r"^\S{2}$", r"^\W$", "é+x", "(?i)K"),
    *(r"\x{e9}", r"\pL{3}", "[à-ü]", "né", "a.b", "^.+$", "a.*b", "x$|é$", r"\.", "^[a-z]+$"),
    *(r"é\b", r"^\B.", "^.+.+$", "^(.+){2}$", r"a.?\B", "^$", "n.?e"),
]
LINES = [
    *("né", "abc", "éé", "É", "ab", "aéb", "e", "aÉx", "日本語", "ééx", "ü", "\N{KELVIN SIGN}"),
    *("k", "a.b", "aé", "été", "a日本b", "", "née"),
]


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.parametrize("bad", [[], [b"a\xe9b", b"\xff", b"n\xe9e"]], ids=["UTF-8", "other"])
def test_an_expression_finds_the_same_in_a_table_in_files_and_in_the_stream(
    tabled: Tabled, partition: Partition, bad: list[bytes]
) -> None:
    lines = [*(one.encode() for one in LINES), *bad]
    block = b"".join(one + b"\n" for one in lines)
    tabled.publish(tabled.ship("web01", "a", block))
    tabled.write()
    partition.start()
    of_host = "--host", "web01"
    for match in ("^.{3}$", "(?i)É|^.$", "a[^x]b"):
        asked = *of_host, "--match", match
        stream = found("--server", tabled.url, *asked)
        of_table = found("--table", tabled.location.uri, "--no-stream", *asked)
        files = "--output", str(partition.output), "--state-dir", str(partition.state)
        of_files = found(*files, "--no-stream", *asked)
        assert (stream, of_files) == (of_table, of_table), match


@pytest.mark.parametrize("match", EXPRESSIONS)
def test_lines_of_utf8_are_compared_as_characters(match: str) -> None:
    lines = "".join(f"{one}\n" for one in LINES).encode()
    # of Python: its expressions differ in \w, \b and in the names of characters
    same = match.replace(r"\x{e9}", "é").replace(r"\pL", r"[^\W\d]")
    flags = re.ASCII if re.search(r"\\[SWBb]", match) else re.NOFLAG
    wanted = [one for one in LINES if re.search(same, one, flags)]

    runs = LineFilter(match=match).find(lines)
    assert "".join(lines[a:b].decode() for a, b in runs) == "".join(f"{one}\n" for one in wanted)


def test_tail_and_the_console_compare_characters_too() -> None:
    request = parse_line_request({"match": "^.{3}$"}, datetime.now(UTC))  # noqa: TID251
    for wanted in (TailOptions(match="^.{3}$").wanted, request.wanted):
        assert wanted.find("für\nfü\n".encode()) == [(0, 5)]


def test_records_that_are_split_up_twice_are_whole() -> None:
    records = b"a\n at\n", b"b\n"
    found = Found("web01", "a.log", b"".join(records), records=records)

    once = [*found.split_up()]
    twice = [one for some in once for one in some.split_up()]
    assert [one.lines for one in twice] == [*records]
    assert [one.pos for one in twice] == [0, 2]


@pytest.mark.parametrize("match", ["\ufffd", "a\udce9b"])
def test_bytes_that_are_not_utf8_are_the_character_for_such(match: str) -> None:
    found = LineFilter(match=match).find(b"a\xe9b\nabc\n")

    assert found == [(0, 4)]


@pytest.mark.parametrize("match", ["ERROR|timeout", r"^\d+ .*x\.y", "Grüße", "(?:a|b)c[0-9]{2}"])
def test_plain_expressions_are_compared_as_bytes(match: str) -> None:
    lines = "0 Grüße\n17 zx.y\nERROR ü\nbc12\n".encode() * 3
    wanted = LineFilter(match=match)

    assert wanted.find(lines) == matching_runs((expression(match),), lines) != []
    assert wanted.may_match(lines) == wanted.find(lines)
