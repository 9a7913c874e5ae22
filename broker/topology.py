"""What must exist on the broker, as values: the stream, the buckets, the consumers. Declares; never talks to a server."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from broker.subjects import consumer_name, partition_filter

__all__ = [
    "CONFIG_BUCKET",
    "MAX_PARTITIONS",
    "MAX_PAYLOAD",
    "OFFSETS_BUCKET",
    "PARTITIONS_KEY",
    "PAYLOAD_HEADROOM",
    "STREAM",
    "Topology",
    "offset_key",
    "room_in",
]

STREAM = "LOGS"
OFFSETS_BUCKET = "LOGS_OFFSETS"
CONFIG_BUCKET = "LOGS_CONFIG"
PARTITIONS_KEY = "partitions"
MAX_PARTITIONS = 10_000

MAX_PAYLOAD = 8 * 1024 * 1024
"""The largest message that the bundled broker takes, in bytes, headers included."""
PAYLOAD_HEADROOM = 64 * 1024
"""What a payload leaves free for its headers: clients do not count them, the server closes the connection over them."""

_NANOSECONDS = 1_000_000_000
_DUPLICATE_WINDOW = timedelta(minutes=2)  # the server's default; it may not exceed max_age


def room_in(max_payload: int) -> int:
    """Return how large a payload may be where messages have at most `max_payload` bytes."""
    return max_payload - min(PAYLOAD_HEADROOM, max_payload // 2)


def offset_key(partition: int) -> str:
    """Return the key of a partition's entry in the bucket of offsets."""
    return f"p{partition}"


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole declaration, from which `streams`, `consumer` and the bucket entries follow.

    `max_bytes` bounds the stream, -1 not at all, and None leaves what is there, as it does for `replicas` (1 at first).
    `max_age` bounds how long a receiver may be away.
    """

    partitions: int = 10
    max_age: timedelta = timedelta(days=1)
    max_bytes: int | None = None
    discard: Literal["old", "new"] = "new"
    replicas: int | None = None

    def streams(self) -> tuple[dict[str, Any], ...]:
        """Return the configurations of the stream and of the buckets, as the JetStream API takes them."""
        return (
            self._logs(),
            self._bucket(OFFSETS_BUCKET, history=16),
            self._bucket(CONFIG_BUCKET, history=4),
        )

    def consumer(self, partition: int) -> dict[str, Any]:
        """Return the configuration of a partition's durable pull consumer.

        The ack floor is the committed offset; a delivery is repeated only by a reset, hence the long `ack_wait`.
        """
        return {
            "durable_name": consumer_name(partition),
            "deliver_policy": "all",
            "ack_policy": "all",
            "ack_wait": 86_400 * _NANOSECONDS,
            "max_ack_pending": -1,
            "filter_subject": partition_filter(partition),
            "replay_policy": "instant",
        }

    def _logs(self) -> dict[str, Any]:
        bound = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        return {
            "name": STREAM,
            "subjects": ["logs.>"],
            "retention": "limits",
            "storage": "file",
            "discard": self.discard,
            "max_age": self._nanoseconds(self.max_age),
            "duplicate_window": self._nanoseconds(min(self.max_age, _DUPLICATE_WINDOW)),
            **self._replicated(),
            "allow_direct": True,
            "allow_atomic": True,
            **bound,
        }

    @staticmethod
    def _nanoseconds(length: timedelta) -> int:
        return length // timedelta(microseconds=1) * 1000

    def _replicated(self) -> dict[str, int]:
        return {} if self.replicas is None else {"num_replicas": self.replicas}

    def _bucket(self, name: str, history: int) -> dict[str, Any]:
        # the same configuration that clients give a key-value bucket, ADR-8
        return {
            "name": f"KV_{name}",
            "subjects": [f"$KV.{name}.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_msgs_per_subject": history,
            **self._replicated(),
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "deny_delete": True,
        }
