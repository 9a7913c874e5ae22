"""What the server's answers mean, and how the status is shown. Cores only."""

from dataclasses import replace
from typing import Any

import pytest

from broker.looking.sight import Inflow, PartitionStatus, Status, inflows_of, replicas_of, strays_of
from broker.looking.status_view import table
from broker.wire.offset import Offset

NOW = "2026-11-21T16:00:00Z"


def seen(**changed: Any) -> Status:
    """Return a broker with two partitions, of which one has a receiver."""
    info = {
        "created": "2026-11-20T00:00:00Z",
        "ts": NOW,
        "config": {"max_bytes": 1000, "max_age": 86_400 * 10**9, "num_replicas": 1, "max_msgs": -1},
        "state": {
            "messages": 10,
            "bytes": 500,
            "first_seq": 1,
            "last_seq": 10,
            "first_ts": "2026-11-21T15:00:00Z",
            "last_ts": "2026-11-21T15:59:59Z",
            "num_subjects": 3,
        },
        "cluster": {"leader": "n1"},
    }
    account = {"storage": 600, "limits": {"max_storage": 2000}}
    consumer = {"ack_floor": {"stream_seq": 4}, "num_pending": 2, "num_ack_pending": 1}
    offset = Offset(5, 2, "", "central", lines=40, size=400)
    partitions = (
        replace(PartitionStatus.of(0, consumer, offset), oldest_pending="2026-11-21T15:58:00Z"),
        PartitionStatus.of(1, {**consumer, "num_pending": 0, "num_ack_pending": 0}, None),
    )
    return replace(
        Status.of(("nats://b:4222", "2.15.1"), info, account, 2, partitions),
        **{"hosts": 3, **changed},
    )


def test_a_partition_waits_from_the_committed_offset_on() -> None:
    first, second = seen().partitions

    assert (first.pending, first.first_pending, first.age(NOW)) == (3, 5, 120.0)
    assert (second.pending, second.first_pending, second.age(NOW)) == (0, None, None)


def test_a_partition_that_nobody_claimed_waits_from_its_ack_floor_on() -> None:
    consumer = {"ack_floor": {"stream_seq": 0}, "num_pending": 7, "num_ack_pending": 0}

    assert PartitionStatus.of(3, consumer, None).first_pending == 1
    assert PartitionStatus.of(3, None, None).first_pending is None


def test_limits_that_are_none_are_none() -> None:
    status = seen()

    assert (status.max_bytes, status.max_messages, status.store_limit) == (1000, None, 2000)
    assert status.max_age == 86_400.0


def test_replicas_are_told_with_their_leader_first() -> None:
    peers = [
        {"name": "n3", "current": False, "offline": True, "active": 5 * 10**9},
        {"name": "n2", "current": False, "lag": 12, "active": 10**9},
    ]

    found = replicas_of({"name": "C", "leader": "n1", "replicas": peers})

    assert [(one.name, one.leader, one.current, one.offline, one.lag) for one in found] == [
        ("n1", True, True, False, 0),
        ("n2", False, False, False, 12),
        ("n3", False, False, True, 0),
    ]
    assert not any(one.leader for one in replicas_of({"name": "C", "replicas": peers}))
    assert replicas_of(None) == ()


def test_lines_that_nobody_reads_are_found() -> None:
    subjects = {"logs.p0.web01": 5, "logs.p2.web02": 3, "logs.web03": 2, "logs.p1.a/b": 1}

    strays = strays_of(subjects, 2)

    assert (strays.messages, strays.subject_count) == (6, 3)
    assert strays.subjects == ("logs.p1.a/b", "logs.p2.web02", "logs.web03")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({}, "not a logbroker", id="a bare nats-server"),
        pytest.param(
            {
                "nodes": (
                    {
                        "name": "n1",
                        "version": "2.15.1",
                        "commit": "b2fd3efc",
                        "provenance": "pinned",
                        "free": 2**30,
                        "credentials": None,
                    },
                )
            },
            "n1, nats-server 2.15.1 [b2fd3ef] (pinned), 1.0 GiB of its disk free, OPEN, no credentials",
            id="a node",
        ),
        pytest.param(
            {"nodes": ({"name": "n1", "frozen": "full"},)}, "FROZEN: full", id="a frozen disk"
        ),
        pytest.param({"nodes": ({"odd": 1},)}, "?", id="a node of another version"),
        pytest.param({"lost_messages": 2}, "2 messages of the store were damaged", id="damage"),
        pytest.param({"current_partitions": 0}, "logbroker apply", id="no number"),
        pytest.param(
            {"current_partitions": 1}, "are spread over 1 of 2 partitions", id="left partitions"
        ),
        pytest.param(
            {"strays": strays_of({"logs.p7.x\x1b": 1}, 2)},
            r"1 message on subjects that no receiver reads: logs.p7.x\x1b",
            id="strays",
        ),
        pytest.param(
            {"cluster": "C", "wanted_replicas": 3, "replicas": ()}, "NO LEADER", id="no leader"
        ),
        pytest.param(
            {
                "cluster": "C",
                "replicas": replicas_of(
                    {
                        "leader": "n1",
                        "replicas": [{"name": "n2", "offline": True, "active": 90 * 10**9}],
                    }
                ),
            },
            "n1 leads, n2 OFFLINE since 1m30s",
            id="a replica that is away",
        ),
    ],
)
def test_the_table_tells_what_is_out_of_the_ordinary(changed: dict[str, Any], said: str) -> None:
    assert said in table(seen(**changed))


def test_the_table_tells_each_partition_with_how_long_its_oldest_message_waits() -> None:
    rows = [line.split() for line in table(seen()).splitlines() if line.startswith("p")]

    assert rows[1][:5] == ["p0", "4", "3", "2m", "5"]
    assert rows[2][:4] == ["p1", "4", "0", "-"]


def test_a_copy_of_another_site_tells_how_far_behind_it_is() -> None:
    external = {"api": "$JS.one.API"}
    mirror = {"name": "LOGS", "lag": 3, "active": 2 * 10**9, "external": external}
    never = {"name": "LOGS", "lag": 0, "active": -1, "external": external}

    assert inflows_of({"mirror": mirror}) == (Inflow("one", 3, 2.0),)
    assert inflows_of({"sources": [never]}) == (Inflow("one", 0, None),)
    assert "site    one: 3 behind, heard 2s ago" in table(
        seen(inflows=inflows_of({"mirror": mirror}))
    )


def test_a_server_on_its_own_that_has_to_do_with_other_sites_is_no_cluster() -> None:
    alone = seen(cluster="vm", replicas=replicas_of({"leader": "vm"}))
    of_one = seen(cluster="C", replicas=replicas_of({"leader": "vm"}))

    assert "cluster" not in table(alone)
    assert "cluster C: vm leads" in table(of_one)
