import pytest

from broker.retention.worker import excess


@pytest.mark.parametrize(
    ("held", "limit", "missing", "share"),
    [
        pytest.param(890_000_000, 10**9, 0, 0.0, id="below the mark"),
        pytest.param(900_000_000, 10**9, 0, 1 / 9, id="down to the lower mark"),
        pytest.param(600_000, 10**6, 0, 0.26, id="a small limit leaves space for a round"),
        pytest.param(1000, -1, 0, 0.0, id="no limit"),
        pytest.param(1000, -1, 60, 0.06, id="what the disk misses"),
        pytest.param(10, -1, 60, 1.0, id="never more than there is"),
        pytest.param(0, -1, 60, 0.0, id="empty"),
    ],
)
def test_the_share_to_purge_follows_the_limit_and_the_disk(
    held: int, limit: int, missing: int, share: float
) -> None:
    info = {"config": {"max_bytes": limit}, "state": {"bytes": held, "messages": 1}}

    assert excess(info, missing) == pytest.approx(share, abs=0.01)
