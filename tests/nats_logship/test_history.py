"""Lines of a table are found again: in order, around a line, counted, and within limits."""

import shutil
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from random import Random
from threading import Event
from time import sleep

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from nats_logship import table_steps
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import to_nanoseconds
from nats_logship.client.line_search import LineFilter
from nats_logship.client.stream_state import StreamState
from nats_logship.history import Cancelled, History, Order, Query, SearchLimits
from nats_logship.wire.restored import Ancestor
from receiver.table.columns import LINES, SectionLines, make_rows
from receiver.table.location import Location
from receiver.table.log import Log
from receiver.table.parquet import write_tables

SECOND = 10**9
BEGAN = 1_795_000_000 * SECOND  # 2026-11-18 11:06:40 UTC
START = "start:^[0-9]"
STREAM = "LOGS/2026-11-18T00:00:00Z"


class Written:
    """A table that is written file by file, without a broker."""

    def __init__(self, folder: Path, first: int = 1) -> None:
        self.address, self.stream, self.next = str(folder), STREAM, first
        self._location = Location(str(folder)).child("lines")
        self._log = Log(self._location, LINES)
        self._log.refresh()

    def add(self, *parts: tuple[str, str, int | Fraction, bytes], records: str = "") -> None:
        """Commit a file: messages by host, file, seconds after `BEGAN`, and lines."""
        made = []
        for host, file, seconds, lines in parts:
            stored_at = int(BEGAN + seconds * SECOND)
            of = (
                host,
                file,
                self.next,
                stored_at,
                0,
                lines,
                lines.count(b"\n") + (lines[-1:] != b"\n"),
            )
            made.append(SectionLines(*of, records))
            self.next += 1
        made.sort(key=lambda part: part.host)
        file = write_tables(
            [make_rows(made, self.stream)], date(2026, 11, 18), self._location, LINES
        )
        self._log.append([file], {f"logship/{self.stream}": self.next})

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(f"{self.address}/lines")

    def open(self, **limits: float) -> History:
        return History.open(self.address, limits=SearchLimits(**limits))

    def find(
        self,
        query: Query | None = None,
        limit: int | None = None,
        order: Order = Order.OLDEST,
    ) -> list[bytes]:
        with self.open() as history:
            return [one.line for one in history.find(query or Query(), limit, order)]


def count(history: History, query: Query, step: int) -> Counter[tuple[int, str]]:
    return sum(history.count_in_steps(query, step), Counter[tuple[int, str]]())


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "table")


def numbered(host: str, seconds: int, *numbers: int) -> tuple[str, str, int, bytes]:
    return (
        host,
        "/var/log/app.log",
        seconds,
        b"".join(b"%s %d\n" % (host.encode(), n) for n in numbers),
    )


@pytest.mark.parametrize("name", ["my logs", "Prüfung's 1", "x[1] ?#"])
def test_a_table_is_searched_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    written = Written(tmp_path / name)
    written.add(numbered("web01", 1, 1))

    assert written.find() == [b"web01 1"]


def test_a_folder_whose_name_delta_rs_reads_as_another_is_refused(tmp_path: Path) -> None:
    Written(tmp_path / "a b").add(numbered("web01", 1, 1))
    shutil.copytree(tmp_path / "a b", tmp_path / "a%20b")

    with pytest.raises(OperatorError, match="%20 in the name of a folder"):
        History.open(str(tmp_path / "a%20b"))


def test_each_search_has_a_private_folder_for_what_memory_cannot_hold(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.add(numbered("web01", 1, 1))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    with written.open() as history, history.another():
        assert [one.stat().st_mode & 0o777 for one in folder.iterdir()] == [0o700] * 2
        forgotten = written.open()
    assert len(list(folder.iterdir())) == 1
    del forgotten
    assert not list(folder.iterdir())


@pytest.mark.parametrize("column", ["time", "host", "stream", "sequence", "pos", "line", "piece"])
def test_rows_of_other_programs_may_lack_any_value(written: Written, column: str) -> None:
    written.add(numbered("web01", 1, 1), numbered("web02", 2, 2))
    rows = written.delta.to_pyarrow_table()
    at = rows.schema.get_field_index(column)
    for number in range(2):  # a file with statistics, and one without
        some = pa.concat_arrays([pa.nulls(1, rows[at].type), rows[at].chunk(0).slice(1, number)])
        foreign = rows.slice(0, 1 + number).set_column(at, rows.schema.field(at), some)
        write_deltalake(f"{written.address}/lines", foreign, mode="append")

    lines = [b"web01 1", b"web02 2", b"web02 2"]
    lines += {"line": [b"", b""], "piece": [b"web01 1"] * 2}.get(column, [])
    for limit, order in ((None, Order.OLDEST), (5, Order.OLDEST), (5, Order.NEWEST)):
        assert sorted(written.find(limit=limit, order=order)) == sorted(lines)
    assert len(written.find(Query(LineSelection(("web02",))), limit=5)) == 2


def test_other_columns_and_statistics_may_be_chosen_for_a_table(written: Written) -> None:
    written.add(numbered("web01", 5, 5))
    written.delta.alter.set_table_properties({"delta.dataSkippingStatsColumns": "line"})
    rows = written.delta.to_pyarrow_table().append_column("mine", pa.array(["x"]))
    write_deltalake(f"{written.address}/lines", rows, mode="append", schema_mode="merge")

    assert written.find() == written.find(limit=5) == [b"web01 5"] * 2


@pytest.mark.parametrize("limit", [None, 5, 100])
def test_lines_come_in_the_order_of_storage_from_files_that_overlap(
    written: Written, limit: int | None
) -> None:
    written.add(numbered("web02", 1, 1, 2), numbered("web01", 5, 9))
    written.add(numbered("web01", 3, 5, 6), numbered("web01", 4, 7))
    written.add(numbered("web03", 2, 3, 4), numbered("web02", 9, 10))

    found = written.find(limit=limit)
    assert (
        found
        == [
            b"web02 1",
            b"web02 2",
            b"web03 3",
            b"web03 4",
            b"web01 5",
            b"web01 6",
            b"web01 7",
            b"web01 9",
            b"web02 10",
        ][:limit]
    )
    assert written.find(limit=limit, order=Order.NEWEST) == written.find()[::-1][:limit]


def test_only_lines_that_fit_every_part_of_a_query_are_found(written: Written) -> None:
    written.add(
        ("web01", "/var/log/app.log", 1, b"INFO a\n[error] b\nFATAL c\n"),
        ("web01", "/var/log/db.log", 2, b"ERROR d\n"),
        ("db[1]", "", 3, b"ERROR e\n\xff ERROR f\n"),
    )
    hosts, files = LineSelection(("web*", "x")), LineSelection((), ("app.*", "/none/*"))
    second = BEGAN + 2 * SECOND

    assert written.find(Query(hosts, match="[ad]$")) == [b"INFO a", b"ERROR d"]
    assert written.find(Query(files, level="error")) == [b"[error] b", b"FATAL c"]
    assert written.find(Query(level="critical")) == [b"FATAL c"]
    assert written.find(Query(since=second, until=second + 1000)) == [b"ERROR d"]
    assert written.find(Query(since=second + SECOND)) == [b"ERROR e", b"\xff ERROR f"]
    assert written.find(Query(LineSelection(("db[[]1]",)), match="f$")) == [b"\xff ERROR f"]
    assert written.find(Query(following=((STREAM, 3),))) == [b"ERROR e", b"\xff ERROR f"]
    for wrong in ({"match": "("}, {"level": "loud"}):
        with pytest.raises(ValueError, match=r"regular expression|is no level"):
            Query(**wrong)


@pytest.mark.parametrize(
    "glob",
    [
        r"*foo\x2dbar.log",
        "db[1",
        "db1",
        "a[!x-z-]?",
        "[]x]b",
        "[^x]b",
        "*[[]*",
        "[b-a]",
        "[!b-a]?",
        "[!]",
    ],
)
def test_a_glob_selects_the_same_names_in_a_table_and_elsewhere(
    written: Written, glob: str
) -> None:
    names = (r"foo\x2dbar.log", "foo-bar.log", "db[1", "db1", "abü", "ax-", "]b", "^b", "xb", "[[")
    written.add(*((name, f"/var/{name}", 1, f"{name}\n".encode()) for name in names))

    for wanted in (LineSelection((glob,)), LineSelection((), (glob, "/none/*"))):
        chosen = [one for one in names if wanted.wants_host(one) and wanted.wants_file(f"/{one}")]
        found = [line.decode() for line in written.find(Query(wanted))]
        assert sorted(found) == sorted(chosen)


@pytest.mark.parametrize("match", [r"2\Z", r"\Aweb{,3}01", "(?i)WEB", r"web01 (?:1|2)\b", "[^0]2$"])
def test_an_expression_finds_the_same_lines_in_a_table_and_elsewhere(
    written: Written, match: str
) -> None:
    lines = b"web01 1\nweb01 2\nwebb{,3}01\n WEB01 2 \nwe01\n"
    written.add(("web01", "", 1, lines))

    ranges = LineFilter(match=match).find(lines)
    assert b"".join(one + b"\n" for one in written.find(Query(match=match))) == b"".join(
        lines[start:end] for start, end in ranges
    )


def test_an_expression_that_tables_do_not_know_is_refused(written: Written) -> None:
    written.add(numbered("web01", 1, 1))
    with pytest.raises(OperatorError, match=r"the table cannot be searched: .*operator: \(\?<"):
        written.find(Query(match="(?<name>web)"))


def test_records_are_found_and_counted_whole(written: Written) -> None:
    lines = b" rest\n1 a\n at a\n2 b\n at b\n3 c\n"
    written.add(("web01", "a", 1, lines), records="start:^[0-9]")
    written.add(("web01", "a", 2, lines), records="start:^[0-9]")

    second = [b"2 b", b" at b"]
    assert written.find(Query(match="at b")) == second * 2
    assert written.find(Query(match="at b"), limit=1) == second
    assert written.find(Query(match="at b"), 1, Order.NEWEST) == second[::-1]
    assert written.find(Query(match="rest|3")) == [b" rest", b"3 c"] * 2


@pytest.mark.parametrize("are_apart", [False, True], ids=["one file", "a file for each"])
@pytest.mark.parametrize(
    ("pieces", "records", "match", "shown"),
    [
        ([b"1 a\n2 b\n", b" x\n", b" at\n3 c\n"], START, "x", b"2 b\n x\n at\n"),
        ([b"1 a\n a", b"t x\n2 b\n"], START, "at", b"1 a\n at x\n"),
        ([b"1 a\n2", b" \xc3", b"\xbc\n \xff\n3 c\n"], START, "2 ü$", b"2 \xc3\xbc\n \xff\n"),
        ([b"a\nb", b"c a", b"t d\ne\n"], "", "bc", b"bc at d\n"),
        ([b"1 a\n2", b" b"], START, "2 b", b"2 b\n"),
    ],
    ids=["records", "inside a line", "inside a letter", "a line", "no end"],
)
def test_lines_and_records_are_whole_whose_pieces_are_in_several_messages(
    written: Written,
    pieces: list[bytes],
    records: str,
    match: str,
    shown: bytes,
    *,
    are_apart: bool,
) -> None:
    made = [("web01", "/a", 2 * number, lines) for number, lines in enumerate(pieces)]
    made.insert(1, ("web01", "/b", 1, b"1 b\n"))
    for some in [[one] for one in made] if are_apart else [made]:
        written.add(*some, records=records)

    lines = shown.splitlines()
    text = b"".join(pieces)
    query = Query(LineSelection(files=("a",)))
    assert written.find(query) == text.splitlines()
    assert written.find(query, order=Order.NEWEST) == text.splitlines()[::-1]
    hits = replace(query, match=match)
    assert written.find(hits) == written.find(hits, limit=1) == lines
    assert written.find(hits, 1, Order.NEWEST) == lines[::-1]
    assert written.find(query, 9, Order.NEWEST) == text.splitlines()[::-1]
    with written.open() as history:
        assert count(history, hits, SECOND).total() == len(lines)
        found = [*history.find(hits, order=Order.OLDEST)]
        first = found[0]
        assert [one.order[:-1] for one in found] == [first.order[:-1]] * len(found)
        assert [one.pos - first.pos for one in found] == [*range(len(found))]
        assert history.get(first.stream, first.sequence, first.pos) is not None
        around = history.around(first, 9, 9)
        assert [one.line for one in around] == text.splitlines()
        assert [one.is_piece for one in around][:-1] == [False] * (len(around) - 1)
    later = Query(LineSelection(files=("a",)), since=BEGAN + 2 * SECOND)
    assert written.find(later) == b"".join(pieces[1:]).splitlines()  # as in the stream


@pytest.mark.parametrize("order", list(Order))
def test_the_first_lines_that_are_found_are_whole_records(written: Written, order: Order) -> None:
    written.add(("web01", "a", 1, b"1 a\n at a\n2 b\n at b\n"), records=START)

    found = written.find(limit=1, order=order)
    assert found == ([b"1 a", b" at a"] if order is Order.OLDEST else [b" at b", b"2 b"])


def test_a_line_that_has_no_end_is_found_in_parts(written: Written) -> None:
    written.add(*(("web01", "a", number, b"%d " % number) for number in range(40)))

    found = written.find()
    assert b"".join(found) == b"".join(b"%d " % number for number in range(40))
    assert len(found) < 5


@pytest.fixture(params=[False, True], ids=["one step", "a step for each file"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search all files in one step, or each by itself."""
    if request.param:
        monkeypatch.setattr(table_steps, "_STEP_BYTES", 1)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(
    ("lines", "records"),
    [(b" n%d\n", START), (b"n%d ", ""), (b" n%d ", START)],
    ids=["no line begins a record", "no newline", "neither"],
)
def test_lines_that_are_stored_much_later_are_not_joined(
    written: Written, lines: bytes, records: str
) -> None:
    for number in range(4):
        written.add(("web01", "a", 200 * number, lines % number), records=records)
    shown = [
        (BEGAN + 200 * number * SECOND, number + 1, (lines % number).removesuffix(b"\n"))
        for number in range(4)
    ]

    with written.open() as history:
        for limit in (None, 9):
            for order, expected in ((Order.OLDEST, shown), (Order.NEWEST, shown[::-1])):
                found = history.find(Query(), limit, order)
                assert [(one.time, one.sequence, one.line) for one in found] == expected
        assert [one.line for one in history.find(Query(), 2)] == [shown[3][2], shown[2][2]]
        assert count(history, Query(), 100 * SECOND) == {(time, ""): 1 for time, _, _ in shown}
        around = history.around(next(history.find(Query(match="n1"))), 1, 1)
        assert [one.line for one in around] == [line for _, _, line in shown[:3]]


@pytest.mark.usefixtures("steps")
def test_the_rest_of_a_record_is_stored_soon_after_it_began(written: Written) -> None:
    for seconds in (0, 200, 260, 290, 350):
        written.add(("web01", "a", seconds, b" gc %d\n at\n" % seconds), records=START)
    written.add(("web01", "a", 400, b"1 ERROR\n"), records=START)
    for seconds in (460, 500, 510, 560):
        written.add(("web01", "a", seconds, b" gc %d\n" % seconds), records=START)

    error = [b"1 ERROR", b" gc 460", b" gc 500"]
    assert written.find(Query(level="error")) == written.find(Query(level="error"), 1) == error
    alone = [[b" gc %d" % seconds, b" at"] for seconds in (0, 200, 260, 290, 350)]
    later = [b" gc 510", b" gc 560"]
    assert written.find() == [*(line for some in alone for line in some), *error, *later]
    for number in range(5):
        assert written.find(limit=number) == [line for some in alone[:number] for line in some]
    assert written.find(Query(match="at"), 2) == alone[0] + alone[1]
    assert written.find(limit=3, order=Order.NEWEST) == [*later[::-1], *error[::-1]]


@pytest.mark.usefixtures("steps")
def test_all_steps_join_the_same_rows_though_each_has_other_ones_nearby(written: Written) -> None:
    for number, lines in enumerate((b"1 x", b"2 y\n", b" n", b"m\n")):  # 2 begins no record
        written.add(("web01", "a", 90 * number, lines), records=START)

    for limit in (None, 9):
        assert written.find(limit=limit) == [b"1 x2 y", b" nm"]


@pytest.mark.parametrize("seed", range(3))
def test_each_line_is_shown_once_in_whatever_steps_files_are_read(
    written: Written, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, seconds, stored = Random(seed), 0, {"a": b"", "b": b""}
    texts = (b" n%d\n", b" n%d\n at\n", b"%d n\n", b" at\n%d n\n", b"p%d", b" at\n%d p", b"%d\np")
    for number in range(10):
        some = list[tuple[str, str, int, bytes]]()
        for _ in range(chance.randint(1, 3)):
            seconds += chance.choice((0, 1, 30, 60, 99, 100, 101, 190, 300, 400))
            file, text = chance.choice("ab"), chance.choice(texts)
            lines = text % number if b"%d" in text else text
            some.append(("web01", file, seconds, lines))
            stored[file] += lines
        written.add(*some, records=chance.choice((START, START, "")))

    def find_all() -> list[object]:
        with written.open() as history:
            views = [
                [*history.find(Query(), limit, order)] for limit in (None, 999) for order in Order
            ]
            hits = [*history.find(Query(match="[1-9]"), 9), *history.find(Query(match="p"), 9)]
            return [*views, hits, count(history, Query(), SECOND)]

    in_one = find_all()
    monkeypatch.setattr(table_steps, "_STEP_BYTES", 1)
    assert find_all() == in_one
    for file, expected in stored.items():
        with written.open() as history:
            found = [*history.find(Query(LineSelection(files=(file,))), order=Order.OLDEST)]
        assert b"".join(one.line + b"\n" * (not one.is_piece) for one in found) == expected


def test_lines_around_a_line_are_those_of_its_host_and_file(written: Written) -> None:
    for second in range(20):
        written.add(
            numbered("web01", second, 2 * second, 2 * second + 1),
            ("web01", "/other", second, b"other\n"),
            numbered("web02", second, second),
        )
    with written.open() as history:
        line = next(history.find(Query(match="web01 20$")))
        around = history.around(line, 3, 4)
        newest = line._replace(time=line.time + 99 * SECOND)  # of the stream, not of the table

        assert [one.line for one in around] == [b"web01 %d" % n for n in range(17, 25)]
        assert history.get(line.stream, line.sequence, line.pos) == line
        assert history.get(line.stream, 10**6, 0) is None
        before = [one.line for one in history.around(newest, 2, 2)]
        assert before == [b"web01 38", b"web01 39"]
    written.add(("web01", "/odd\ufffd", 20, b"1\n2\n"))  # no UTF-8: in a stream the byte is kept
    with written.open() as history:
        line = newest._replace(file="/odd\udce9")
        assert [one.line for one in history.around(line, 2, 2)] == [b"1", b"2"]


def test_lines_around_a_line_are_whole_records(written: Written) -> None:
    written.add(("web01", "a", 1, b"1 a\n at a\n2 b\n at b\n3 c\n"), records=START)
    written.add(("web01", "a", 2, b"4 d\n" + b" at d\n" * 20 + b"5 e\n"), records=START)

    with written.open() as history:
        line = next(history.find(Query(match="3 c")))
        inside = history.get(STREAM, 1, 3)
        assert inside is not None
        around = [history.around(one, *most) for one in (line, inside) for most in ((1, 1), (2, 0))]

    first, second = [b"1 a", b" at a"], [b"2 b", b" at b"]
    assert [[one.line for one in lines] for lines in around] == [
        [*second, b"3 c", b"4 d", *[b" at d"] * 20],
        [*first, *second, b"3 c"],
        [*first, *second, b"3 c"],
        [*first, *second],
    ]


def test_a_restored_stream_shares_the_lines_of_its_ancestors_with_the_table(
    written: Written,
) -> None:
    archived, other = Ancestor(STREAM.removeprefix("LOGS/"), 5), Ancestor("2026-11-01", 3)
    state = StreamState("2026-11-19T00:00:00Z", 1, 9, (other, archived))
    written.next = 3
    written.add(numbered("web01", 3, 3))
    written.add(*(numbered("web01", n, n) for n in (4, 5, 6)))  # 5 and 6 were not archived
    for known_alone in (1, 5):
        with written.open() as history:
            assert history.range_before(state) == (1, 3)
            assert history.range_before(replace(state, ancestors=())) == (1, known_alone)
        written.stream, written.next = state.key, 5
        written.add(numbered("web01", 7, 7))


def test_lines_are_counted_by_time_and_level(written: Written) -> None:
    written.add(("web01", "a", 0, b"INFO\nERROR\n"), ("web01", "a", 9, b"x\nERROR\n"))
    written.add(("web01", "a", 4, b"WARN\n"), ("web02", "a", 19, b"ERROR\n"))

    with written.open() as history:
        found = count(history, Query(since=BEGAN + SECOND, until=BEGAN + 20 * SECOND), 5 * SECOND)
        errors = count(history, Query(level="error"), 10 * SECOND)

    assert found == {
        (BEGAN, "warning"): 1,
        (BEGAN + 5 * SECOND, ""): 1,
        (BEGAN + 5 * SECOND, "error"): 1,
        (BEGAN + 15 * SECOND, "error"): 1,
    }
    assert errors == {(BEGAN, "error"): 2, (BEGAN + 10 * SECOND, "error"): 1}


def test_statistics_that_are_cut_to_milliseconds_hide_no_line(written: Written) -> None:
    at = Fraction(123_456, 10**6)
    for number in range(3):
        written.add(("web01", "a", number + at, b"%d\n" % number))
    written.delta.optimize.compact()

    last = BEGAN + 2 * SECOND + 123_450_000
    assert written.find(Query(since=last)) == [b"2"]
    with written.open() as history:
        line = next(history.find(Query(match="2")))
        assert [one.line for one in history.around(line, 1, 1)] == [b"1", b"2"]


def test_a_version_that_was_opened_is_the_same_until_its_files_are_gone(
    written: Written,
) -> None:
    written.add(numbered("web01", 1, 1))
    with written.open() as history:
        written.add(numbered("web01", 2, 2))
        assert len(list(history.find(Query()))) == 1
        for file in Path(written.address).rglob("*.parquet"):
            file.unlink()
        with pytest.raises(OperatorError, match="files cannot be read"):
            list(history.find(Query()))


def test_closing_ends_a_search_in_another_thread(written: Written) -> None:
    def search(history: History, began: Event) -> None:
        for _ in range(10_000):
            count(history, Query(), SECOND)
            began.set()

    written.add(numbered("web01", 0, *range(20_000)))
    with ThreadPoolExecutor() as pool:
        for _ in range(5):
            with written.open() as history:
                running = pool.submit(search, history, began := Event())
                assert began.wait(60)
            with pytest.raises(Cancelled):
                running.result(60)


def test_a_search_that_is_cancelled_or_takes_too_long_ends(written: Written) -> None:
    written.add(numbered("web01", 1, *range(5000)))
    with written.open() as history, history.another() as other:
        lines = history.find(Query())
        next(lines)
        history.cancel()
        with pytest.raises(Cancelled):
            list(lines)
        with pytest.raises(Cancelled):
            count(history, Query(), SECOND)
        assert len(list(other.find(Query()))) == 5000
    with written.open(seconds=0.001) as late, pytest.raises(OperatorError, match="took over"):
        _search_for_ever(late)


def _search_for_ever(history: History) -> None:
    while True:
        list(history.find(Query()))


def test_progress_says_how_far_a_search_is(written: Written) -> None:
    written.add(numbered("web01", 1, 1))
    written.add(numbered("web01", 9, 2))
    with written.open() as history:
        assert history.progress.of == 0
        list(history.find(Query(), order=Order.OLDEST))
        read, size, until = history.progress

    assert (read, until) == (size, BEGAN + 9 * SECOND + 999_000)  # statistics may be cut
    assert size == history.size > 0


@pytest.mark.parametrize("order", Order)
def test_a_search_that_takes_too_long_gives_what_it_has_and_says_where_to_go_on(
    written: Written, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    monkeypatch.setattr(table_steps, "_STEP_BYTES", 1)
    for second in range(4):  # a file has lines of the one before it, too
        written.add(numbered("web01", second, second), numbered("web02", second + 2, second))
    wanted = written.find(order=order)
    found = list[bytes]()
    with written.open(seconds=1.0) as history:
        lines = history.find(Query(), 100, order)
        with pytest.raises(OperatorError, match="1 s: it ended at 20") as late:  # noqa: PT012
            for line in lines:
                found.append(line.line)
                if len(found) == 3:
                    sleep(1.5)
    at = to_nanoseconds(datetime.fromisoformat(str(late.value).split(" at ")[1].split(";")[0]))
    rest = Query(until=at) if order is Order.NEWEST else Query(since=at)
    assert 3 <= len(found) < len(wanted)
    assert [*found, *written.find(rest, 100, order)] == wanted
