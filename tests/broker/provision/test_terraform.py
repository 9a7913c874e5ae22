import json
from datetime import timedelta
from typing import Any

from broker.provision.comparing import Wanted
from broker.provision.document import Document
from broker.provision.steps import Kind
from broker.provision.terraform import terraform
from broker.topology import Topology
from broker.wire.streams import consumer_config


def resources(*wanted: Wanted) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(terraform(Document(wanted, 2), "nats://b1:4222"))["resource"]
    return found


def test_a_stream_is_what_the_provider_calls_it_in_whole_seconds() -> None:
    topology = Topology(
        max_age=timedelta(hours=1),
        max_bytes=5,
        placement_cluster="east",
        placement_tags=("ssd",),
        replicas=3,
        description="costs ${money}",
    )

    found = resources(Wanted(Kind.STREAM, "LOGS", topology.streams()[0]))

    stream = found["jetstream_stream"]["LOGS"]
    assert (stream["name"], stream["max_age"], stream["duplicate_window"]) == ("LOGS", 3600, 1)
    assert (stream["replicas"], stream["max_bytes"], stream["ack"]) == (3, 5, True)
    assert (stream["placement_cluster"], stream["placement_tags"]) == ("east", ["ssd"])
    assert stream["description"] == "costs $${money}"  # no expression


def test_a_consumer_refers_to_its_stream() -> None:
    found = resources(Wanted(Kind.CONSUMER, "receiver-p0", consumer_config(0), "LOGS"))

    assert found["jetstream_consumer"]["LOGS_receiver-p0"] == {
        "stream_id": "${jetstream_stream.LOGS.id}",
        "durable_name": "receiver-p0",
        "deliver_all": True,
        "ack_policy": "all",
        "ack_wait": 86400,
        "max_ack_pending": -1,
        "filter_subject": "logs.p0.>",
        "replay_policy": "instant",
    }


def test_a_mirror_and_sources_are_lists_of_blocks() -> None:
    config = {
        "name": "COPY",
        "mirror": {"name": "LOGS", "opt_start_seq": 5, "external": {"api": "$JS.hub.API"}},
        "sources": [{"name": "A", "subject_transforms": [{"src": "a.>", "dest": "b.>"}]}],
    }

    stream = resources(Wanted(Kind.STREAM, "COPY", config))["jetstream_stream"]["COPY"]

    assert stream["mirror"] == [
        {"name": "LOGS", "start_seq": 5, "external": [{"api": "$JS.hub.API"}]}
    ]
    assert stream["source"][0]["subject_transform"] == [{"source": "a.>", "destination": "b.>"}]


def test_the_number_of_partitions_is_an_entry_of_its_bucket() -> None:
    assert resources()["jetstream_kv_entry"]["LOGS_CONFIG_partitions"] == {
        "bucket": "LOGS_CONFIG",
        "key": "partitions",
        "value": "2",
        "depends_on": ["jetstream_stream.KV_LOGS_CONFIG"],
    }
