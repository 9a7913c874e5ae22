"""Names of segments and when they are full."""

from hypothesis import given
from hypothesis import strategies as st

from broker.wire.subjects import InvalidHost, validate_host
from receiver.storage import rotation

hosts = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P"], include_characters="."),
    min_size=1,
    max_size=253,
)


def is_host(name: str) -> bool:
    try:
        validate_host(name)
    except InvalidHost:
        return False
    return True


@given(st.lists(hosts.filter(is_host), unique=True, max_size=5), st.integers(1, 9_999_999))
def test_no_two_hosts_share_a_name_and_every_name_fits(names: list[str], number: int) -> None:
    stems = [rotation.stem_of(name) for name in names]
    stems += [f"{stem}..p9999" for stem in stems]

    assert len(set(stems)) == len(stems)
    for stem in stems:
        live = f"{stem}.log"
        closed = rotation.closed_name(live, number)
        assert len(f".{closed}.zst.new".encode()) <= 255
        assert rotation.closed_segments([live]) == {}
        for suffix in ("", ".zst", ".gz"):
            assert rotation.closed_segments([closed + suffix]) == {live: {number: closed + suffix}}
            assert rotation.live_of(closed + suffix) == live
            assert rotation.plain_name(closed + suffix) == closed
