import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.units import format_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1024**5, "1024.0 TiB"),
    ],
)
def test_a_size_is_written_in_the_largest_unit(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 1024**5))
def test_no_size_is_written_wider_than_a_column(size: int) -> None:
    assert len(format_size(size)) <= 10
