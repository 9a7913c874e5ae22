"""Names that all programs share: streams, buckets, keys; and the size of a message."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nats_logship.wire.subjects import make_token

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
"""The largest message that the bundled broker accepts, in bytes with headers."""
PAYLOAD_HEADROOM = 64 * 1024
"""Bytes that a payload leaves for headers; the server ends a connection that exceeds its limit."""
SLOWEST_LINK = 8_000
"""Bytes a second of the slowest supported network, 64 kbit/s.

Timeouts of transfers follow from their size and this speed. TCP notices a dead connection sooner.
"""


def stream_names(streams: int) -> tuple[str, ...]:
    """Return the names of so many streams."""
    if streams == 1:
        return (STREAM,)
    return tuple(f"{STREAM}_{number}" for number in range(streams))


def stream_of(partition: int, streams: int) -> str:
    """Return the name of the stream that holds a partition, one of so many streams."""
    return stream_names(streams)[partition % streams]


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The number of partitions that hosts use now, and the number of streams that hold them.

    The number of partitions may change; that of streams is fixed at the broker's first start.
    """

    partitions: int
    streams: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all streams."""
        return stream_names(self.streams)

    def stream_of(self, partition: int) -> str:
        """Return the name of the stream that holds a partition."""
        return stream_of(partition, self.streams)

    def partitions_in(self, config: Mapping[str, Any]) -> range:
        """Return the partitions of a stream, also those that only its `config` still names."""
        most = max(self.partitions, count_partitions(config.get("subjects") or ()))
        return range(self.names.index(config["name"]), most, self.streams)


def offset_key(partition: int) -> str:
    """Return the key of a partition's offset."""
    return f"p{partition}"


def positions_key(host: str) -> str:
    """Return the key of a host's positions."""
    return make_token(host)


def parse_number(value: str | bytes | None, most: int) -> int | None:
    """Return the value of a key as a number from 1 to `most`; None for anything else."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value or ""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_number and 1 <= int(text) <= most else None


def count_partitions(subjects: Iterable[str]) -> int:
    """Return the highest partition among subjects of a stream, plus one; 0 if there is none."""
    numbers = (int(found[1]) for one in subjects if (found := _OF_PARTITION.fullmatch(one)))
    return max((number + 1 for number in numbers if number < MAX_PARTITIONS), default=0)
