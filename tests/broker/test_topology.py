from broker.topology import Topology
from broker.wire.streams import MAX_PAYLOAD


def test_the_stream_takes_lines_of_its_partitions_on_disk() -> None:
    logs = Topology(partitions=2).streams()[0]

    assert logs["subjects"] == ["logs.p0.>", "logs.p1.>"]
    assert (logs["allow_atomic"], logs["allow_direct"], logs["storage"]) == (False, True, "file")
    assert logs["duplicate_window"] == 100_000_000


def test_offsets_and_positions_never_expire_and_a_host_holds_one_message_of_them() -> None:
    for bucket in Topology().streams()[1:]:
        assert "max_age" not in bucket
        assert bucket["discard"] == "new"
        assert bucket["max_msgs_per_subject"] >= 1

    positions = Topology().streams()[3]
    assert positions["name"] == "KV_LOGS_POSITIONS"
    assert (positions["max_msgs_per_subject"], positions["max_msg_size"]) == (1, MAX_PAYLOAD)
    assert not positions["allow_rollup_hdrs"]


def test_a_site_that_copies_another_one_copies_positions_and_no_offsets() -> None:
    copied = [one["name"] for one in Topology(mirror="hub").streams() if one.get("mirror")]

    assert copied == ["LOGS", "KV_LOGS_CONFIG", "KV_LOGS_POSITIONS"]
