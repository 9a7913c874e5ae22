"""Rates, filling and delays, and how they fit a screen. Cores only."""

from dataclasses import replace

import pytest

from broker.client.arrived import Arrived
from broker.looking.message import nanoseconds
from broker.looking.top_view import KEYS, By, Layout, screen
from broker.looking.traffic import Picture, Traffic
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.looking.conftest import without_payload
from tests.broker.looking.test_sight import NOW, seen

_STORED = nanoseconds(NOW)
_SECOND = 10**9


def _message(
    subject: str,
    lines: int,
    size: int,
    waited: float = 0.0,
    told: int | None = None,
    **more: str,
) -> Arrived:
    section = Section("/var/log/app.log", Span("1", 0, size), size, lines)
    origin = Origin("1-a", _STORED - int(waited * _SECOND), (section,))
    return without_payload(subject, encode_origin(origin) | more, told or size)


def _steady(seconds: int = 60) -> Traffic:
    """Return what was counted of ten messages a second of web01, and a message of db01 long ago."""
    traffic = Traffic(0.0)
    traffic.known(_STORED - 600 * _SECOND, without_payload("logs.p1.db01", {}, 0))
    for step in range(seconds * 10):
        traffic.arrived(_STORED, _message("logs.p0.web01", 5, 1000, waited=2.0), step / 10)
    return traffic


def test_rates_are_those_of_the_last_seconds() -> None:
    picture = _steady().picture(seen(), 60.0)

    assert picture.lines_in == pytest.approx(50, rel=0.05)
    assert picture.bytes_in == pytest.approx(10_000, rel=0.05)
    assert picture.partitions[0].lines_in == pytest.approx(50, rel=0.05)
    assert picture.partitions[1].lines_in == 0
    assert _steady().picture(seen(), 600.0).lines_in == pytest.approx(0, abs=0.1)


def test_hosts_are_told_with_their_silence_and_their_delay() -> None:
    hosts = {host.host: host for host in _steady().picture(seen(), 60.0).hosts}

    assert (hosts["db01"].silent, hosts["db01"].lines, hosts["db01"].delay) == (600.0, 0.0, None)
    assert (hosts["web01"].silent, hosts["web01"].delay) == (0.0, 2.0)


def test_a_host_s_clock_that_is_anywhere_tells_no_delay() -> None:
    traffic = Traffic(0.0)
    traffic.known(_STORED, _message("logs.p0.a", 1, 2, **{"Log-Read-At": "1"}))
    traffic.known(_STORED, _message("logs.p0.b", 1, 2, waited=-1.0))

    delays = {host.host: host.delay for host in traffic.picture(seen(), 1.0).hosts}

    assert delays == {"a": None, "b": 0.0}


def test_what_a_receiver_sets_aside_has_bytes_but_no_lines_and_no_host() -> None:
    traffic = Traffic(0.0)
    for step in range(600):
        bad = _message("logs.p0.web01", 5, 900, told=1000)
        traffic.arrived(_STORED, bad, step / 10)

    picture = traffic.picture(seen(), 60.0)

    assert picture.bytes_in == pytest.approx(10_000, rel=0.05)
    assert picture.lines_in == 0
    assert picture.hosts == ()


def test_receivers_are_as_fast_as_their_totals_grow() -> None:
    traffic = Traffic(0.0)
    for step in range(31):
        first = replace(seen().partitions[0], lines=step * 200, bytes=step * 4000)
        status = seen(partitions=(first, seen().partitions[1]))
        traffic.glanced(status, step * 2.0)

    first, second = traffic.picture(status, 60.0).partitions

    assert first.lines_out == pytest.approx(100, rel=0.15)
    assert first.bytes_out == pytest.approx(2000, rel=0.15)
    assert second.lines_out is None


def test_a_total_that_was_set_back_is_no_rate() -> None:
    traffic = Traffic(0.0)
    for now, lines in ((0.0, 1000), (2.0, 10)):
        first = replace(seen().partitions[0], lines=lines, bytes=lines)
        traffic.glanced(seen(partitions=(first,)), now)

    assert traffic.picture(seen(partitions=(first,)), 2.0).partitions[0].lines_out == 0


@pytest.mark.parametrize(
    ("sizes", "full_in"),
    [
        pytest.param([500, 510, 520, 530, 540], 46.0, id="ten bytes a second"),
        pytest.param([540, 520], None, id="it empties"),
        pytest.param([500, 510], None, id="too soon to tell"),
        pytest.param([500] * 9, None, id="it stays"),
    ],
)
def test_the_time_until_the_store_is_full_goes_by_its_speed(
    sizes: list[int], full_in: float | None
) -> None:
    traffic = Traffic(0.0)
    for now, size in enumerate(sizes):
        traffic.glanced(seen(bytes=size), float(now))

    picture = traffic.picture(seen(bytes=sizes[-1]), float(len(sizes)))

    assert picture.full_in == full_in
    assert picture.used == sizes[-1] / 1000


def _picture() -> Picture:
    traffic = _steady()
    for number in range(40):
        traffic.known(_STORED, _message(f"logs.p0.host{number:02}", 1, 1, waited=30.0))
    traffic.glanced(seen(), 0.0)
    return traffic.picture(seen(), 60.0)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (20, 5), (200, 60), (1, 1)])
def test_a_screen_is_never_left(width: int, height: int) -> None:
    many = tuple(replace(_picture().partitions[0], partition=number) for number in range(50))

    lines = screen(replace(_picture(), partitions=many), Layout(width, height, foot=KEYS))

    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[-1] == KEYS[:width]


def test_where_not_all_partitions_fit_those_that_wait_longest_do_and_hosts_keep_some_rows() -> None:
    one = _picture().partitions[0]
    many = tuple(replace(one, partition=number, age=float(number)) for number in range(50))

    text = "\n".join(screen(replace(_picture(), partitions=many), Layout(100, 24, foot=KEYS)))

    assert "p49 " in text
    assert "more partitions" in text
    assert "web01" in text


@pytest.mark.parametrize(
    ("by", "first"),
    [
        (By.BYTES, "web01"),
        (By.LINES, "web01"),
        (By.NAME, "db01"),
        (By.SILENCE, "db01"),
        (By.DELAY, "host00"),
    ],
)
def test_hosts_are_sorted_as_asked(by: By, first: str) -> None:
    lines = screen(_picture(), Layout(by=by))
    heads = [place for place, line in enumerate(lines) if line.startswith("host ")]

    assert lines[heads[-1] + 1].split()[0] == first


def test_what_is_out_of_the_ordinary_is_marked() -> None:
    picture = replace(_picture(), skipped=7, trouble="no broker\x1b")

    text = "\n".join(screen(picture, Layout()))

    assert "42, 1 silent and 40 slow" in text
    assert text.count("SILENT") == 1
    assert text.count("SLOW") == 40
    assert "7 messages are in no rate" in text
    assert r"NO ANSWER: no broker\x1b" in text
