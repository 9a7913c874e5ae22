import json
from typing import Any

import pytest

from broker.server.health import Healing, enough_space, read_health, tells_of_failed_write

FULL = "JetStream stream 'LOGS > LOGS' write error: write /s/4.blk: no space left on device"


def answer(**data: Any) -> bytes:
    return json.dumps({"server": {"name": "b1"}, "data": data}).encode()


def test_a_failed_write_is_told_apart_from_other_trouble() -> None:
    full = read_health(answer(status="unavailable", status_code=503, error=FULL))
    other = read_health(answer(status="error", error="JetStream is not current"))
    fine = read_health(answer(status="ok"))

    assert full is not None
    assert full.frozen == "write /s/4.blk: no space left on device"
    assert other is not None
    assert (other.ailing, other.frozen) == ("JetStream is not current", "")
    assert fine is not None
    assert (fine.server, fine.ailing, fine.frozen) == ("b1", "", "")


def test_a_server_of_a_cluster_that_has_dropped_jetstream_for_a_full_disk_is_frozen() -> None:
    # nats-server 2.15.1, of three, on a full disk
    disabled = read_health(answer(status="unavailable", error="JetStream not enabled (10076)"))

    assert disabled is not None
    assert disabled.frozen == "JetStream not enabled (10076)"
    for words in ("out of resources", "out of File resources"):
        assert tells_of_failed_write(f"JetStream {words}, will be DISABLED")


def test_one_failed_write_among_other_trouble_is_found() -> None:
    details = answer(status="error", errors=[{"error": "lags"}, {"error": FULL}])

    health = read_health(details)

    assert health is not None
    assert health.frozen.startswith("write /s/4.blk")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"data": {}}', b'{"server": 1, "data": 2}'])
def test_what_is_no_answer_is_passed_over(data: bytes) -> None:
    assert read_health(data) is None


def test_the_servers_log_tells_it_too() -> None:
    assert tells_of_failed_write("Filestore [LOGS] Critical write error: write /x: no space left")
    assert not tells_of_failed_write("Slow consumer")


def test_a_disk_has_space_again_when_half_of_the_reserve_is_there() -> None:
    assert enough_space(free=500 * 2**20, reserve=1000 * 2**20)
    assert not enough_space(free=499 * 2**20, reserve=1000 * 2**20)
    assert not enough_space(free=1, reserve=0)


def test_what_does_not_help_is_tried_less_and_less_often() -> None:
    first = Healing().begun(1000.0)
    second = first.begun(1005.0)

    assert Healing().may_begin(0.0)
    assert not first.may_begin(1004.0)
    assert first.may_begin(1005.0)
    assert not second.may_begin(1014.0)
    assert second.may_begin(1015.0)
    assert Healing(50, 1000.0).may_begin(1300.0)
    assert Healing(50, 1000.0).begun(99_999.0).times == 1
