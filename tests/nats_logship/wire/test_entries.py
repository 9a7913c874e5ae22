"""Entries of buckets: offsets and pauses are read as they were written, or refused."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.pause import Pause, UnreadablePauses, active_pause, decode_pauses

times = st.just("") | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
fields = (
    (("next", "lines", "size"), st.integers(0, 2**63 - 1)),
    (("epoch", "moved_in"), st.integers(0, 2**31)),
    (("stream_created", "owner", "commit"), st.text()),
    (("last_time", "committed_at"), times),
)
offsets = st.builds(Offset, **{name: kind for names, kind in fields for name in names})


@given(offsets)
def test_an_offset_is_read_without_fields_of_a_later_program(offset: Offset) -> None:
    later = json.dumps(json.loads(offset.encode()) | {"colour": "blue"}).encode()

    assert Offset.decode(offset.encode()) == Offset.decode(later) == offset


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version": 1, "next": 1}'])
def test_an_entry_that_is_not_ours_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableOffset):
        Offset.decode(data)


@given(offsets, st.data())
def test_an_entry_with_another_value_is_read_or_refused(
    offset: Offset, data: st.DataObject
) -> None:
    entry = json.loads(offset.encode())
    name = data.draw(st.sampled_from(sorted(entry)))
    entry[name] = data.draw(st.none() | st.text() | st.integers() | st.lists(st.integers()))

    with suppress(UnreadableOffset):
        found = Offset.decode(json.dumps(entry).encode())
        assert found == replace(offset, **{name: entry[name]} if name != "version" else {})
        assert type(entry[name]) is type(getattr(offset, name, 1))
        assert name != "version" or entry[name] == 1


NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "value",
    [
        *(b"\xff", b"{}", b"[1]", b"[" * 10_000, b'[{"reason": "no hosts"}]'),
        *(b'[{"hosts": "%s"}]' % hosts for hosts in (b"", b"a b", b"a/b", b"a.>")),
        *(b'[{"hosts": "*", "until": "%s"}]' % end for end in (b"soon", b"2026-11-23T14:30:00")),
        b'[{"hosts": "*", "reason": "%s"}]' % (501 * b"x"),
    ],
)
def test_anything_but_a_list_of_pauses_is_refused_in_one_line(value: bytes) -> None:
    with pytest.raises(UnreadablePauses, match=r"^[^\n]+$"):
        decode_pauses(value)


@pytest.mark.parametrize(
    ("glob", "matched", "others"),
    [
        ("*", ("web01", "a.b.c", "münchen"), ()),
        ("web*", ("web", "web01.example.net"), ("db01", "Web01", "my.web01")),
        ("db?.x[!1]", ("db1.x2",), ("db12.x2", "db1.x1", "db1-x2")),
    ],
)
def test_a_glob_matches_whole_names(
    glob: str, matched: tuple[str, ...], others: tuple[str, ...]
) -> None:
    pauses = (Pause(hosts=glob),)

    assert all(active_pause(pauses, host, NOW) for host in matched)
    assert not any(active_pause(pauses, host, NOW) for host in others)


def test_the_pause_that_ends_last_counts() -> None:
    over, later, last, endless = (
        Pause(hosts="web*", until=end) for end in (NOW, NOW + HOUR, NOW + 2 * HOUR, None)
    )

    assert active_pause((over,), "web01", NOW) is None
    assert active_pause((over, last, later), "web01", NOW) == last
    assert active_pause((later, endless, last), "web01", NOW) == endless
