import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.offset import Offset, UnreadableOffset

times = st.just("") | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
offsets = st.builds(
    Offset,
    next=st.integers(0, 2**63),
    epoch=st.integers(0, 2**31),
    stream_created=st.text(),
    owner=st.text(),
    lines=st.integers(0, 2**63),
    size=st.integers(0, 2**63),
    last_time=times,
    committed_at=times,
    commit=st.text(),
    moved_in=st.integers(0, 2**31),
)


@given(offsets)
def test_an_offset_comes_back_as_it_was_written(offset: Offset) -> None:
    assert Offset.decode(offset.encode()) == offset


def test_a_field_of_a_later_program_is_passed_over() -> None:
    entry = {
        "version": 1,
        "next": 7,
        "epoch": 2,
        "stream_created": "",
        "owner": "",
        "colour": "blue",
    }

    assert Offset.decode(json.dumps(entry).encode()) == Offset(7, 2, "", "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 2, "next": 1}',
        b'{"version": 1, "next": 1}',
        b'{"version": 1, "next": 1, "epoch": 1, "stream_created": "", "owner": "", "last_time": "yesterday"}',
    ],
)
def test_an_entry_that_is_not_ours_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableOffset):
        Offset.decode(data)


@given(
    st.dictionaries(
        st.sampled_from(["next", "epoch", "owner", "stream_created"]),
        st.none() | st.text() | st.integers() | st.lists(st.integers()),
    )
)
def test_hostile_entries_are_read_or_unreadable_and_nothing_else(entry: dict[str, object]) -> None:
    try:
        offset = Offset.decode(json.dumps({"version": 1, **entry}).encode())
    except UnreadableOffset:
        return

    assert isinstance(offset.next, int)
    assert isinstance(offset.owner, str)
