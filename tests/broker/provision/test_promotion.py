"""A copy of another site's stream takes the lines of the partitions that there are, and of no others."""

from broker.provision.promotion import promotion
from broker.wire.streams import StreamLayout

MIRROR = {"external": {"api": "$JS.first.API"}}


def test_a_copy_that_is_promoted_takes_lines_of_its_partitions_only() -> None:
    configs = {
        "LOGS": {"name": "LOGS", "mirror": {"name": "LOGS", **MIRROR}},
        "KV_LOGS_CONFIG": {
            "name": "KV_LOGS_CONFIG",
            "mirror": {"name": "KV_LOGS_CONFIG", **MIRROR},
        },
        "KV_LOGS_POSITIONS": {
            "name": "KV_LOGS_POSITIONS",
            "mirror": {"name": "KV_LOGS_POSITIONS", **MIRROR},
        },
    }

    changed = {
        step.name: step.config["subjects"] for step in promotion(configs, StreamLayout(2)).steps
    }

    assert changed == {
        "LOGS": ["logs.p0.>", "logs.p1.>"],
        "KV_LOGS_CONFIG": ["$KV.LOGS_CONFIG.>"],
        "KV_LOGS_POSITIONS": ["$KV.LOGS_POSITIONS.>"],
    }
