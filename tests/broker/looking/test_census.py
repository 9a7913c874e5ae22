from typing import Any

import pytest

from broker.client.arrived import Arrived
from broker.looking.census import Census, HostTraffic
from broker.looking.hosts_view import Order, as_table, sorted_by
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.looking.conftest import without_payload

_SECOND = 1_000_000_000


def _message(
    subject: str,
    size: int,
    lines: int | None,
    *files: str,
    size_told: int | None = None,
    **more: str,
) -> Arrived:
    """Return a message with a section of each file, of so many bytes and lines; None: another client's."""
    sections = [
        Section(file, Span("1", 0, size), size, lines or 0)
        for file in files or ("/var/log/app.log",)
    ]
    ours = {} if lines is None else encode_origin(Origin("1-a", 1, tuple(sections)))
    return without_payload(subject, ours | more, size_told or size * len(sections))


def _census() -> Census:
    census = Census()
    census.holds("logs.p0.web01", 4)
    census.holds("logs.p1.db01", 1)
    census.last(40 * _SECOND, _message("logs.p0.web01", 100, 2))
    census.last(10 * _SECOND, _message("logs.p1.db01", 7, None))
    return census


def test_what_was_counted_whole_is_exact() -> None:
    census = _census()
    for number in range(4):
        census.count((10 + number * 10) * _SECOND, _message("logs.p0.web01", 100, 2))
    census.count(10 * _SECOND, _message("logs.p1.db01", 7, None))

    db, web = census.hosts(whole=True)

    assert (web.messages, web.lines, web.bytes, web.exact) == (4, 8, 400, True)
    assert (web.first_seen, web.last_seen, web.agent) == (10 * _SECOND, 40 * _SECOND, "1-a")
    assert (db.lines, db.bytes, db.partitions, db.files) == (1, 7, (1,), ())


def test_what_was_counted_in_part_is_scaled_up_and_says_so() -> None:
    census = _census()
    for number in (3, 4):
        census.count(number * _SECOND, _message("logs.p0.web01", 50 * number, number))

    db, web = census.hosts(whole=False)

    assert (web.messages, web.lines, web.bytes, web.exact) == (4, 14, 700, False)
    assert web.first_seen is None
    assert (db.lines, db.bytes, db.exact) == (1, 7, False)  # by its last message alone


def test_a_host_in_two_partitions_is_one_host_with_the_younger_of_its_last_messages() -> None:
    census = _census()
    census.holds("logs.p3.web01", 2)
    census.last(5 * _SECOND, _message("logs.p3.web01", 1, 1, "/old"))

    _, web = census.hosts(whole=False)

    assert (web.partitions, web.messages, web.file) == ((0, 3), 6, "/var/log/app.log")


def test_a_path_is_shown_as_it_is_on_its_host() -> None:
    census = _census()
    census.count(1, _message("logs.p0.web01", 1, 1, "/a\nb%"))

    assert census.hosts(whole=False)[1].files == ("/a\nb%",)


def test_lines_and_files_are_those_of_all_sections() -> None:
    census = _census()
    census.count(50 * _SECOND, _message("logs.p0.web01", 10, 2, "/b", "/c", "/a"))
    census.last(50 * _SECOND, _message("logs.p0.web01", 10, 2, "/b", "/c", "/a"))

    web = census.hosts(whole=True)[1]

    assert (web.lines, web.bytes) == (6, 30)
    assert (web.file, web.files) == ("/a", ("/a", "/b", "/c"))


def test_files_are_those_of_the_last_message_where_no_other_was_read() -> None:
    census = _census()
    census.last(50 * _SECOND, _message("logs.p0.web01", 10, 2, "/b", "/a"))

    assert census.hosts(whole=False)[1].files == ("/a", "/b")


def test_of_a_host_that_makes_up_files_no_more_than_a_thousand_are_counted() -> None:
    census = _census()
    for number in range(1500):
        census.count(1, _message("logs.p0.web01", 1, 1, f"/{number:04}", f"/x/{number}"))

    web = census.hosts(whole=True)[1]

    assert (web.file_count, len(web.files), web.lines) == (1001, 20, 3000)
    assert "/var/log/app.log, one of more than 1,000\n" in as_table([web], 0, 1)


def test_subjects_of_nobody_are_no_hosts() -> None:
    census = Census()
    for subject in ("logs.web01", "logs.p0.a/b", "logs.x.web01"):
        census.holds(subject, 1)
        census.last(1, without_payload(subject, {}, 0))

    assert census.hosts(whole=True) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"size_told": 99},
        {"Log-Spans": "nine"},
        {"Log-Spans": "[]"},
        {"Log-Agent": ""},
        {"Log-Read-At": ""},
        {"Content-Encoding": "gzip"},
    ],
)
def test_what_a_receiver_sets_aside_tells_only_when_it_was_stored(wrong: dict[str, Any]) -> None:
    census = Census()
    census.holds("logs.p0.web01", 2)
    bad = _message("logs.p0.web01", 100, 2, "/forged", **({"Log-Agent": "forged"} | wrong))
    census.count(1, _message("logs.p0.web01", 100, 2))
    census.last(2, bad)
    census.count(2, bad)

    (web,) = census.hosts(whole=True)

    assert (web.messages, web.lines, web.bytes, web.set_aside) == (1, 2, 100, 1)
    assert (web.last_seen, web.agent, web.files) == (2, "1-a", ("/var/log/app.log",))


def test_hosts_are_sorted_the_largest_first_and_the_longest_silent_first() -> None:
    hosts = _census().hosts(whole=False)

    def names(order: Order) -> list[str]:
        return [host.host for host in sorted_by(hosts, order)]

    assert names(Order.NAME) == ["db01", "web01"]
    assert names(Order.MESSAGES) == names(Order.LINES) == names(Order.BYTES) == ["web01", "db01"]
    assert names(Order.SILENT) == ["db01", "web01"]


def test_a_table_tells_estimates_from_counts_and_hides_what_a_terminal_would_act_on() -> None:
    host = HostTraffic(
        *("a\x1b[2J", (0, 1), 3, 5, 2048, False, None, 60 * _SECOND, "", "/a", ("/a",), 4)
    )

    text = as_table([host], 200 * _SECOND, 2)

    assert "~5" in text
    assert "~2.0 KiB" in text
    assert "2m20s" in text
    assert "/a and 3 more" in text
    assert "\x1b" not in text
    assert "1 of 2 hosts" in text
