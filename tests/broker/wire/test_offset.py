import json
from contextlib import suppress
from dataclasses import replace
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


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version": 1, "next": 1}'])
def test_an_entry_that_is_not_ours_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableOffset):
        Offset.decode(data)


@given(offsets, st.data())
def test_an_entry_with_another_value_is_read_as_it_is_or_unreadable(
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
