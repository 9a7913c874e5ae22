import json
from typing import Any

import pytest

from broker.server.health import Restarts, enough_space, read_health

FULL = "JetStream stream 'LOGS > LOGS' write error: write /s/4.blk: no space left on device"


def answer(**data: Any) -> bytes:
    return json.dumps({"server": {"name": "b1"}, "data": data}).encode()


@pytest.mark.parametrize(
    ("data", "frozen"),
    [
        ({"status": "ok"}, ""),
        ({"status": "error", "error": "JetStream is not current"}, ""),
        ({"status": "unavailable", "error": FULL}, "write /s/4.blk: no space left on device"),
        # one of three, on a full disk
        ({"error": "JetStream not enabled (10076)"}, "JetStream not enabled (10076)"),
        (
            {"errors": [{"error": "lags"}, {"error": FULL}]},
            "write /s/4.blk: no space left on device",
        ),
    ],
)
def test_a_failed_write_is_told_apart_from_other_trouble(data: dict[str, Any], frozen: str) -> None:
    assert read_health(answer(**data)) == ("b1", frozen)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"data": {}}', b'{"server": 1, "data": 2}'])
def test_what_is_no_answer_is_passed_over(data: bytes) -> None:
    assert read_health(data) is None


def test_a_disk_has_space_again_when_half_of_the_reserve_is_there() -> None:
    assert enough_space(free=500 * 2**20, reserve=1000 * 2**20)
    assert not enough_space(free=499 * 2**20, reserve=1000 * 2**20)
    assert not enough_space(free=1, reserve=0)


def test_what_does_not_help_is_tried_less_and_less_often() -> None:
    restarts = Restarts()
    assert restarts.may_begin(0.0)

    restarts.begin(1000.0)
    assert not restarts.may_begin(1004.0)
    assert restarts.may_begin(1005.0)
    restarts.begin(1005.0)
    assert not restarts.may_begin(1014.0)
    assert restarts.may_begin(1015.0)
    assert Restarts(50, 1000.0).may_begin(1300.0)
    restarts.begin(99_999.0)
    assert restarts.times == 1
