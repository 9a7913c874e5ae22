import pytest

from broker.retention.worker import Disk, excess


@pytest.mark.parametrize(
    ("held", "limit", "disk", "share"),
    [
        pytest.param(890_000_000, 10**9, None, 0.0, id="below the mark"),
        pytest.param(900_000_000, 10**9, None, 1 / 9, id="down to the lower mark"),
        pytest.param(600_000, 10**6, None, 0.26, id="a small limit leaves space for a round"),
        pytest.param(1000, -1, None, 0.0, id="no limit"),
        pytest.param(1000, -1, Disk(60, 100), 0.0, id="half of what is to stay free is there"),
        pytest.param(1000, -1, Disk(40, 100), 0.06, id="what the disk misses"),
        pytest.param(10, -1, Disk(40, 100), 1.0, id="never more than there is"),
        pytest.param(0, -1, Disk(40, 100), 0.0, id="empty"),
    ],
)
def test_the_share_to_purge_follows_the_limit_and_the_disk(
    held: int, limit: int, disk: Disk | None, share: float
) -> None:
    info = {"config": {"max_bytes": limit}, "state": {"bytes": held, "messages": 1}}

    assert excess(info, disk) == pytest.approx(share, abs=0.01)
