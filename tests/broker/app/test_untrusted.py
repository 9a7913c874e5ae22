import pytest

from broker.app.untrusted import json_object


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"no", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000),
        *(b'{"a":NaN}', b'{"a":1e400}'),
    ],
)
def test_what_is_no_object_is_nothing(data: bytes) -> None:
    assert json_object(data) is None
