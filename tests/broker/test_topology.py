from broker.topology import Topology
from broker.wire.streams import MAX_PAYLOAD


def test_offsets_and_positions_never_expire_and_a_host_holds_one_message_of_them() -> None:
    for bucket in Topology().streams()[1:]:
        assert "max_age" not in bucket
        assert bucket["discard"] == "new"
        assert bucket["max_msgs_per_subject"] >= 1

    positions = Topology().streams()[3]
    assert positions["name"] == "KV_LOGS_POSITIONS"
    assert (positions["max_msgs_per_subject"], positions["max_msg_size"]) == (1, MAX_PAYLOAD)
    assert not positions["allow_rollup_hdrs"]
