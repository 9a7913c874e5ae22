from pathlib import Path

import click
import pytest

from broker.app.configuration import load
from broker.app.exits import ConfigurationError
from broker.settings import BrokerSettings

WRONG = [
    ({"max_msgs": "0"}, "max-msgs: .*at least 1, or -1"),
    ({"max_msgs": "9223372036854775808"}, "max-msgs: .*at least 1, or -1"),
    ({"max_msg_size": "1kB"}, "max-msg-size: .*from 4096 bytes"),
    ({"max_consumers": "5"}, "max-consumers: .*at least 10"),
    ({"discard_new_per_subject": True}, "discard-new-per-subject: needs max_msgs_per_subject"),
    (
        {"discard_new_per_subject": True, "max_msgs_per_subject": "9", "discard": "old"},
        "needs discard = new",
    ),
    ({"max_age": "1h", "duplicate_window": "2h"}, "duplicate-window: .*max_age, which is 1h"),
    ({"duplicate_window": "10ms"}, "duplicate-window: .*from 0.1s"),
    ({"compression": "gzip"}, "compression: .*none"),
    ({"storage": "tape"}, "storage: .*memory"),
    ({"metadata": ("owner",)}, "metadata: .*NAME=VALUE"),
    ({"metadata": ("_nats.ver=1",)}, "metadata: .*neither the server's"),
    ({"placement_cluster": "a b"}, "placement-cluster: .*must not hold"),
    ({"max_age": "300000d"}, "max-age: .*100000d"),
    ({"max_bytes": "99999PB"}, "max-bytes: .*at most"),
]


@pytest.mark.parametrize(("options", "reason"), WRONG)
def test_a_limit_that_cannot_be_is_refused_by_name(options: dict[str, object], reason: str) -> None:
    with pytest.raises(click.UsageError, match=f"--{reason}" if ":" in reason else reason):
        load(BrokerSettings, options, None)


def test_a_limit_that_contradicts_another_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text('max_age = "1h"\n\nduplicate_window = "2h"\n', "utf-8")

    with pytest.raises(ConfigurationError, match=r"logbroker\.toml:3: duplicate_window: must be"):
        load(BrokerSettings, {}, path)


def test_nothing_is_declared_of_what_nobody_set() -> None:
    limits = {"max_bytes", "max_msgs", "max_msg_size", "max_msgs_per_subject", "max_consumers"}
    declared = load(BrokerSettings, {}, None).topology().streams()[0]

    assert not declared.keys() & (limits | {"compression", "placement", "description", "metadata"})


def test_the_buckets_are_kept_where_the_stream_is() -> None:
    asked = {"storage": "memory", "replicas": "3", "compression": "s2", "placement_tags": ("ssd",)}

    for stream in load(BrokerSettings, asked, None).topology().streams():
        assert (stream["storage"], stream["num_replicas"]) == ("memory", 3)
        assert (stream["compression"], stream["placement"]) == ("s2", {"tags": ["ssd"]})


def test_a_placement_is_lifted_by_an_empty_name() -> None:
    declared = load(BrokerSettings, {"placement_cluster": ""}, None).topology().streams()[0]

    assert declared["placement"] == {}
