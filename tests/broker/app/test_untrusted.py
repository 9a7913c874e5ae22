import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.untrusted import json_object


@given(st.dictionaries(st.text(), st.integers(-(2**63), 2**63) | st.text() | st.booleans()))
def test_a_plain_object_comes_as_it_was_written(value: dict[str, object]) -> None:
    assert json_object(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"no", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000),
        *(b'{"a":NaN}', b'{"a":1e400}'),
    ],
)
def test_what_is_no_object_is_nothing(data: bytes) -> None:
    assert json_object(data) is None
