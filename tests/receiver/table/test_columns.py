"""Rows of a table: what each column has of a message."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter

import pyarrow as pa
import pytest

from nats_logship.app.timestamps import to_nanoseconds
from nats_logship.wire.containers import name_container
from nats_logship.wire.levels import level_runs
from nats_logship.wire.records import parse_records
from nats_logship.wire.stream_message import StreamMessage
from receiver.table.columns import GROUP_BYTES, Splitter, cut_groups, make_rows
from receiver.table.level import find_levels
from tests.receiver.partition import lines_of, message, ours

_WEB = {"container": "app", "pod": "web-0", "namespace": "shop"}
_STORED = 1_795_000_000_000_000_000


def rows_of(*messages: tuple[str, bytes, dict[str, str] | None]) -> list[dict[str, object]]:
    splitter = Splitter()
    stored = [
        StreamMessage(subject, number, _STORED, headers or {}, data)
        for number, (subject, data, headers) in enumerate(messages, 1)
    ]
    parts = [part for one in stored for part in splitter.split(one)]
    assert not splitter.unreadable
    return make_rows(parts, "LOGS/x").to_pylist()


def columns_of(rows: list[dict[str, object]], *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_each_line_is_a_row_with_its_position_in_the_message() -> None:
    rows = rows_of(ours("web01", "a", 0, b"one\n\nthree\r\n"), ("logs.p1.x.y", b"plain", None))

    assert columns_of(rows, "host", "file", "sequence", "pos", "line", "piece", "raw") == [
        ("web01", "/var/log/a", 1, 0, "one", False, None),
        ("web01", "/var/log/a", 1, 1, "", False, None),
        ("web01", "/var/log/a", 1, 2, "three\r", False, None),
        ("x.y", None, 2, 0, "plain", False, None),
    ]


def test_bytes_that_are_no_utf8_are_in_raw_and_a_line_without_newline_is_a_piece() -> None:
    latin, fffd = "Grüße\n".encode("latin-1"), "\ufffd\n".encode()
    rows = rows_of(ours("web01", "a", 0, b"ok\n" + latin + fffd), ours("web01", "a", 99, b"long"))

    assert columns_of(rows, "line", "raw", "piece") == [
        ("ok", None, False),
        ("Gr\ufffd\ufffde", latin[:-1], False),
        ("\ufffd", None, False),
        ("long", None, True),
    ]


def test_what_cannot_be_read_is_kept_aside_with_its_reason() -> None:
    splitter = Splitter()
    headers = {"Log-Agent": "1-1", "Log-Read-At": "1", "Log-Spans": "[]"}

    assert splitter.split(StreamMessage("logs.p0.web01", 7, _STORED, headers, b"x")) == []
    assert splitter.split(StreamMessage("logs.p0.a/b", 8, _STORED, {}, b"y")) == []

    assert [(one.sequence, one.payload) for one in splitter.unreadable] == [(7, b"x"), (8, b"y")]
    assert "Log-Spans" in splitter.unreadable[0].reason


def test_a_message_of_very_many_lines_takes_several_row_groups() -> None:
    splitter, lines = Splitter(), b"a\n" + b"\n" * 6
    section, payload = lines_of("a", 0, lines * 100_000)
    subject, data, headers = message("web01", (replace(section, records="start:^a"), payload))
    parts = splitter.split(StreamMessage(subject, 1, _STORED, headers or {}, data))
    rows = pa.concat_tables([make_rows([part], "LOGS/x") for part in parts])

    assert all(part.width <= GROUP_BYTES for part in parts), "700,000 lines are too many for one"
    assert b"".join(part.payload for part in parts) == payload
    assert rows["pos"].to_pylist() == [*range(700_000)]
    assert rows["record"].to_pylist() == [pos - pos % 7 for pos in range(700_000)]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-11-20 ERROR no", "error"),
        ('{"level":"warn","msg":"x"}', "warning"),
        ("ts=1 level=Info msg=x", "info"),
        ("<11>Nov 29 14:03:07 app: INFO x", "error"),
        ("<192>x", None),
        ("[20/Nov/2026] [core:notice] x", "info"),
        ("2026/11/20 [crit] 1#1: x", "critical"),
        ("the error was INFORMATIONAL", None),
        ("FATALITY, PANICKED", None),
        ("", None),
        ("x" * 200 + " ERROR", None),
        ('{"msg":"ERROR in ' + "x" * 200 + '","log.level":"info"}', "info"),
        ('{"msg":"' + "é" * 1000 + '","level": "Error"}', "error"),
        ('{"level":50,"msg":"x"}', "error"),
        ('{"level":30,"msg":"level=error"}', "info"),
        ('{"level":31,"msg":"x"}', None),
        ('{"levelname":"WARNING"}', "warning"),
        ('{"msg":"CRITICAL"}', "critical"),
        ('{"msg":"' + "x" * 4096 + '","level":"error"}', None),
    ],
)
def test_a_level_counts_only_where_programs_write_one(line: str, level: str | None) -> None:
    other = "WARN another line"
    assert find_levels(pa.array([line, other])).to_pylist() == [level, "warning"]
    block = f"{other}\n{line}\n".encode()
    ranges = level_runs(level or "trace", block, len(other) + 1, len(block))
    assert [*ranges] == ([(len(other) + 1, len(block))] if level else [])


_T = datetime(2026, 11, 20, 14, 3, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-11-20T14:03:05Z x", _T),
        ("2026-11-20 14:03:05,123 x", _T.replace(microsecond=123_000)),
        ('{"time":"2026-11-20T15:03:05.1234567+01:00"}', _T.replace(microsecond=123_456)),
        ('10.0.0.1 - - [20/Nov/2026:15:03:05 +0100] "GET /', _T),
        ("Nov 20 14:03:05 web01 sshd[1]: x", _T.replace(year=2026)),
        ('{"level":"info","msg":"of 2020-01-01T00:00:00Z","time":"2026-11-20T14:03:05Z"}', _T),
        (
            '{"log":"' + "x" * 500 + '\\n","time":"2026-11-20T14:03:05.5Z"}',
            _T.replace(microsecond=500_000),
        ),
        ('{"@timestamp": "2026-11-20 14:03:05", "n": 1}', _T),
        ('{"when":"2026-11-20T14:03:05Z"}', _T),
        ("2026-11-20T14:03:05Z stdout F - [21/Nov/2026:15:03:05 +0100]", _T),
        ("level=info at=2026-11-20T14:03:05Z x", _T),
        ("2026-02-30 14:03:05 no day", None),
        ("2025-02-29T14:03:05Z no day either", None),
        ("no time", None),
    ],
)
def test_the_time_in_a_line_is_read_in_many_forms(line: str, time: datetime | None) -> None:
    text = f"{line}\n{line}\nno time here\n".encode()
    rows = rows_of(ours("web01", "a", 0, text), ours("web01", "b", 0, b"nothing\n"))
    assert [row["ts"] for row in rows] == [time, time, None, None]


def test_the_time_of_a_line_does_not_depend_on_other_lines() -> None:
    at = "2026-11-20T14:03:05"
    levels = [f'{{"level":"{one}","time":"{at}Z"}}' for one in ("info", "error", "warning")]
    others = ["", "at x.y(Z.java:7)", f"{at}.25+01:00", "Nov 20 14:03:05 a b", "{"]
    zones = [f"{at}{zone} x" for zone in ("", "Z", "+01:00", "-05:00", "-0500", ".25-05:00")]
    access = [f'{address} - [20/Nov/2026:14:03:05 +0000] "' for address in ("::1", "10.0.0.1")]
    inside = ["x" * width + f" {at}Z" for width in range(20)]
    lines = [*levels, *others, *zones, *access, *inside] * 4
    random.Random(1).shuffle(lines)

    def read(*files: Sequence[str]) -> list[object]:
        texts = ["".join(f"{line}\n" for line in file).encode() for file in files]
        return [row["ts"] for row in rows_of(*(ours("a", "f", 0, text) for text in texts))]

    alone = {line: read([line])[0] for line in lines}
    assert [alone[one] for one in others].count(None) == 3
    assert read(lines) == read(*([line] for line in lines)) == [alone[line] for line in lines]
    assert all(alone[line] for line in (*levels, *zones, *access, *inside))


def test_times_without_a_year_are_of_the_last_year_that_has_been() -> None:
    stored = datetime(2026, 12, 31, 20, tzinfo=UTC)
    lines = b"Dec 31 23:59:59 a\nJan  1 05:00:00 b\nFeb  2 05:00:00 c\n"
    subject, data, headers = ours("web01", "a", 0, lines)
    one = StreamMessage(subject, 1, to_nanoseconds(stored), headers or {}, data)
    rows = make_rows(Splitter().split(one), "LOGS/x").to_pylist()

    assert [row["ts"].isoformat()[:10] for row in rows] == [
        "2026-12-31",
        "2027-01-01",
        "2026-02-02",
    ]


def test_fractions_of_different_lengths_are_read_in_one_file() -> None:
    text = b"2026-11-20T14:03:05.12Z a\n2026-11-20T14:03:05Z b\n2026-11-20T14:03:05.5+01:00 c\n"
    rows = rows_of(ours("web01", "a", 0, text))
    assert [row["ts"] for row in rows] == [
        _T.replace(microsecond=120_000),
        _T,
        _T.replace(hour=13, microsecond=500_000),
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/log/pods/shop_web-0_4f/app/0.log", _WEB),
        (f"/var/log/containers/web-0_shop_app-{'a' * 64}.log", _WEB),
        (f"/var/lib/docker/containers/{'b' * 64}/{'b' * 64}-json.log", {"container": "b" * 64}),
        (f"/d/100000.1/containers/{'b' * 64}/{'b' * 64}-json.log.1", {"container": "b" * 64}),
        ("/mnt/data/log/pods/shop_web-0_4f/app/0.log.20260109-071108.gz", _WEB),
        ("/var/log/app.log", {}),
        ("/var/lib/docker/containers/b/b-json.log", {}),
        ("/var/log/pods/notes.log", {}),
    ],
)
def test_the_path_of_a_file_names_its_container(path: str, expected: dict[str, str]) -> None:
    assert name_container(path) == expected


@pytest.mark.parametrize(
    ("records", "lines", "expected"),
    [
        ("", b"a\nb\n", [0, 1]),
        ("start:^[0-9]", b"1\n2\n at x\n at y\n3\n", [0, 1, 1, 1, 4]),
        ("start:^[0-9]", b" rest\n1\n x\n", [None, 1, 1]),
        ("start:^[0-9]", b" rest\n only\n", [None, None]),
        ("end:;$", b"a\nb;\nc;\nd\n", [0, 0, 2, 3]),
        ("start:(", b"a\nb\n", [0, 1]),
        ("start:^[0-9]", b"1\n un", [0, 0]),
    ],
)
def test_lines_of_a_record_name_the_line_that_begins_it(
    records: str, lines: bytes, expected: list[int | None]
) -> None:
    section, _ = lines_of("a", 0, lines)
    rows = rows_of(message("web01", (replace(section, records=records), lines)))
    assert [row["record"] for row in rows] == expected


@pytest.mark.parametrize("text", ["start:^[0-9]", "start:^[^ ]", "end:[;é]$"])
def test_records_of_several_files_are_those_of_a_shipper(text: str) -> None:
    records, choose = parse_records(text), random.Random(text).choice
    assert records
    kinds = [b"1 x", b" at y", b"", b"z;", "1 é".encode("latin-1"), b"2026 stdout P 1", b"\0"]
    sections, expected = [], []
    for number in range(200):
        lines = b"".join(choose(kinds) + b"\n" for _ in range(choose(range(1, 9))))
        begun = text[0] == "e" or records.begins(lines, 0, lines.find(b"\n"))
        first = pos = len(expected)
        for record in records.split(lines):
            begins = pos if begun or pos > first else None
            pos += record.count(b"\n")
            expected += [begins] * (pos - len(expected))
        section, _ = lines_of(f"f{number}", 0, lines)
        sections.append((replace(section, records=text), lines))

    assert [row["record"] for row in rows_of(message("web01", *sections))] == expected


def test_a_message_of_nothing_but_newlines_takes_little_memory() -> None:
    lines = b"\n" * 2**20 + b"1\n" * 2**19 + b"x" * 2**20 + b"\nend"
    one = message("web01", lines_of("a", 0, lines))
    stored = StreamMessage(one[0], 1, _STORED, one[2] or {}, one[1])
    groups = [
        make_rows(group, "LOGS/x")
        for group in cut_groups(Splitter().split(stored), 2**24, attrgetter("width"))
    ]

    assert max(len(rows) for rows in groups) < 2**20
    rows = pa.concat_tables(groups)
    assert rows["pos"].to_pylist() == [*range(2**20 + 2**19 + 2)]
    assert "\n".join(rows["line"].to_pylist()).encode() == lines
    assert [*map(rows["piece"].to_pylist().count, (True, False))] == [1, len(rows) - 1]


def test_sections_of_one_message_count_their_lines_together() -> None:
    two = message("web01", lines_of("a", 0, b"1\n2\n"), lines_of("b", 0, b"3\n"))
    assert columns_of(rows_of(two), "file", "pos", "line") == [
        ("/var/log/a", 0, "1"),
        ("/var/log/a", 1, "2"),
        ("/var/log/b", 2, "3"),
    ]
