"""The options of the data source, read once: names and meanings as in Spark's Kafka source. Values only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from broker.exits import ConfigurationError
from broker.topology import STREAM

__all__ = ["Edge", "Position", "SourceOptions"]

_KNOWN = (
    *("servers", "stream", "partitions", "startingOffsets", "endingOffsets"),
    *("startingTimestamp", "endingTimestamp", "maxBytesPerTrigger", "maxOffsetsPerTrigger"),
    *("minPartitions", "failOnDataLoss", "includeHeaders"),
)
_SUFFIXES = {"k": 1024, "m": 1024**2, "g": 1024**3}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Edge(Enum):
    """A place in the stream that has a name."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = Edge | datetime | dict[int, int]
"""Where to begin or to end: an edge, a time of storage, or a sequence for each partition."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach the stream and what to read of it.

    `partitions` None: all that the broker's configuration names. `starting` None: earliest for a batch, latest for a
    stream. `most_bytes` and `most_offsets` bound a micro-batch, in bytes as stored and in sequences.
    """

    servers: tuple[str, ...]
    stream: str
    partitions: tuple[int, ...] | None
    starting: Position | None
    ending: Position
    most_bytes: int | None
    most_offsets: int | None
    least_partitions: int
    fail_on_data_loss: bool
    include_headers: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Read what a user gave, in any case of letters; raise `ConfigurationError` naming the option that is wrong."""
        given = {key.lower(): value for key, value in options.items()}
        _refuse_unknown(given)
        starting = _position(given, "startingOffsets", "startingTimestamp")
        ending = _position(given, "endingOffsets", "endingTimestamp")
        return cls(
            servers=tuple(_words(given.get("servers", "nats://127.0.0.1:4222"))),
            stream=_stream(given.get("stream", STREAM)),
            partitions=_partitions(given.get("partitions", "all"), starting, ending),
            starting=starting,
            ending=Edge.LATEST if ending is None else ending,
            most_bytes=_size(given, "maxBytesPerTrigger"),
            most_offsets=_size(given, "maxOffsetsPerTrigger"),
            least_partitions=_size(given, "minPartitions") or 1,
            fail_on_data_loss=_flag(given, "failOnDataLoss", "true"),
            include_headers=_flag(given, "includeHeaders", "true"),
        )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _KNOWN} | {"path"}  # Spark's own, from load("…")
    if unknown := sorted(set(given) - known):
        raise ConfigurationError(
            f"jetstream has no option {unknown[0]!r}; there are {', '.join(_KNOWN)}"
        )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _stream(name: str) -> str:
    if not name or any(sign in name for sign in " .*>/\\\t\r\n"):
        raise ConfigurationError(f"stream {name!r} is not a name of a stream")
    return name


def _partitions(
    text: str, starting: Position | None, ending: Position | None
) -> tuple[int, ...] | None:
    named = [position for position in (starting, ending) if isinstance(position, dict)]
    if text.strip().lower() == "all":
        return tuple(sorted(named[0])) if named else None
    words = _words(text)
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigurationError(f"partitions {text!r} is neither `all` nor a list such as 0,3")
    chosen = tuple(sorted({int(word) for word in words}))
    for position in named:
        if missing := [partition for partition in chosen if partition not in position]:
            raise ConfigurationError(
                f"the offsets given name no sequence for partition {missing[0]}"
            )
    return chosen


def _position(given: Mapping[str, str], offsets: str, timestamp: str) -> Position | None:
    if (text := given.get(timestamp.lower())) is not None:
        return _time(text, timestamp)
    text = given.get(offsets.lower(), "").strip()
    if not text:
        return None
    if text.lower() in {edge.value for edge in Edge}:
        return Edge(text.lower())
    return _sequences(text, offsets)


def _sequences(text: str, option: str) -> dict[int, int]:
    try:
        parsed = json.loads(text)
        sequences = {int(partition): int(sequence) for partition, sequence in parsed.items()}
    except (ValueError, TypeError, AttributeError):
        sequences = {}
    if not sequences or min(*sequences.keys(), *sequences.values()) < 0:
        raise ConfigurationError(
            f'{option} {text!r} is neither earliest, nor latest, nor sequences such as {{"3": 123}}'
        )
    return sequences


def _time(text: str, option: str) -> datetime:
    try:
        if text.strip().isdigit():
            return _EPOCH + timedelta(milliseconds=int(text))
        time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{option} {text!r} is neither milliseconds since 1970 nor a time such as 2026-11-20T12:00:00Z"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _size(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower(), "").strip().lower()
    if not text:
        return None
    number, unit = (text[:-1], _SUFFIXES[text[-1]]) if text[-1] in _SUFFIXES else (text, 1)
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise ConfigurationError(f"{option} {text!r} is not a positive number (k, m, g may follow)")
    return int(number) * unit


def _flag(given: Mapping[str, str], option: str, default: str) -> bool:
    text = given.get(option.lower(), default).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{option} {text!r} is neither true nor false")
    return text == "true"
