"""Names of what both ends and the broker meet at: the streams, their buckets and keys, and how large a message may be."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nats_logship.wire.subjects import own_token

STREAM = "LOGS"
OFFSETS_BUCKET = "LOGS_OFFSETS"
CONFIG_BUCKET = "LOGS_CONFIG"
POSITIONS_BUCKET = "LOGS_POSITIONS"
PARTITIONS_KEY = "partitions"
STREAMS_KEY = "streams"
MAX_PARTITIONS = 10_000
MAX_STREAMS = 64
_OF_PARTITION = re.compile(r"logs\.p(0|[1-9][0-9]{0,5})\.>")

MAX_PAYLOAD = 8 * 1024 * 1024
"""The largest message that the bundled broker takes, in bytes, headers included."""
SLOWEST_LINK = 8_000
"""Bytes a second of the slowest line that is supported, 64 kbit/s.

How long something may take that is under way follows from its size and this: nothing is a sign of a
dead line before so much time has passed. A dead line is noticed sooner by TCP itself.
"""
PAYLOAD_HEADROOM = 64 * 1024
"""What a payload leaves free for its headers: clients do not count them, the server closes the connection over them."""


def stream_names(streams: int) -> tuple[str, ...]:
    """Return the names of the streams that partitions are spread over."""
    if streams == 1:
        return (STREAM,)
    return tuple(f"{STREAM}_{number}" for number in range(streams))


def stream_of(partition: int, streams: int) -> str:
    """Return the name of the stream that a partition lives in, of so many streams."""
    return stream_names(streams)[partition % streams]


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """How many partitions hosts are spread over, and how many streams the partitions are spread over.

    The number of partitions may change, the number of streams is fixed at the first start of a broker.
    """

    partitions: int
    streams: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all streams."""
        return stream_names(self.streams)

    def stream_of(self, partition: int) -> str:
        """Return the name of the stream that a partition lives in."""
        return stream_of(partition, self.streams)

    def partitions_in(self, config: Mapping[str, Any]) -> range:
        """Return the partitions in a stream: those that hosts are spread over, and those before that its `config` has subjects of."""
        most = max(self.partitions, count_partitions(config.get("subjects") or ()))
        return range(self.names.index(config["name"]), most, self.streams)


def offset_key(partition: int) -> str:
    """Return the key of a partition's entry in the bucket of offsets."""
    return f"p{partition}"


def positions_key(host: str) -> str:
    """Return the key of a host's snapshot in the bucket of positions."""
    return own_token(host)


def parse_number(value: str | bytes | None, most: int) -> int | None:
    """Return the number that an entry of the bucket of settings says, None where it says none from 1 to `most`."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value or ""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_number and 1 <= int(text) <= most else None


def count_partitions(subjects: Iterable[str]) -> int:
    """Return the number below which all partitions are that are among these subjects of a stream."""
    numbers = (int(found[1]) for one in subjects if (found := _OF_PARTITION.fullmatch(one)))
    return max((number + 1 for number in numbers if number < MAX_PARTITIONS), default=0)
