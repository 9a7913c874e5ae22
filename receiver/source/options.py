"""The options of the data source, read once: names and meanings as in Spark's Kafka source. Values only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from itertools import combinations

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.client.servers import check_servers
from broker.wire.streams import STREAM
from broker.wire.subjects import partition_filter
from receiver.source.given import Given
from receiver.source.patterns import is_pattern, meet, named

__all__ = ["DEFAULT_SERVERS", "Edge", "Limits", "Position", "Show", "SourceOptions"]

_KNOWN = (
    *("servers", "stream", "partitions", "subjects", "startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp"),
    *("maxBytesPerTrigger", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders"),
    *("explode", "lineType"),
    *("creds", "nkey", "user", "password", "passwordFile", "tokenFile"),
    *("tlsCa", "tlsCert", "tlsKey", "tlsFirst"),
)

DEFAULT_SERVERS = "nats://127.0.0.1:4222"
_TRIGGER_DELAY = timedelta(minutes=15)


class Edge(Enum):
    """A place in the stream that has a name."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = Edge | datetime | dict[str, int]
"""Where to begin or to end: an edge, a time of storage, or a sequence for each subject filter."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a micro-batch, and how a range is cut for tasks; sizes in bytes as stored, counts in sequences.

    A query waits until there are `least_offsets`, but at most `longest_delay` between two batches.
    """

    most_bytes: int | None
    most_offsets: int | None
    least_offsets: int | None
    longest_delay: timedelta
    least_pieces: int
    longest_piece: int | None


@dataclass(frozen=True, slots=True)
class Show:
    """Which rows: sections or their lines (as strings or bytes), with or without headers."""

    headers: bool = True
    explode: bool = False
    as_text: bool = True


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach the stream and what to read of it.

    `subjects` None: every partition that the broker's configuration names. `starting` None: earliest for a batch, latest
    for a stream. `by_partition` says how a query's offsets name subjects: by the number of their partition, or as they are.
    """

    servers: tuple[str, ...] = field(repr=False)  # addresses may hold a password
    access: Access
    stream: str
    subjects: tuple[str, ...] | None
    by_partition: bool
    starting: Position | None
    ending: Position
    refuse_time_to_come: bool
    limits: Limits
    fail_on_data_loss: bool
    show: Show

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Read what a user gave, in any case of letters; raise `ConfigurationError` naming the option that is wrong."""
        given = Given.among(_KNOWN, options)
        by_partition = not given.text("subjects")
        starting = _position(given, "startingOffsets", "startingTimestamp", by_partition)
        ending = _position(given, "endingOffsets", "endingTimestamp", by_partition)
        chosen = _partitions(given) if by_partition else _subjects(given)
        strategy = given.choice("startingOffsetsByTimestampStrategy", "latest", "error")
        return cls(
            servers=_servers(given),
            access=_access(given),
            stream=_stream(given.text("stream", STREAM)),
            subjects=_covered(chosen, starting, ending),
            by_partition=by_partition,
            starting=starting,
            ending=Edge.LATEST if ending is None else ending,
            refuse_time_to_come=strategy == "error",
            limits=_limits(given),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            show=_show(given),
        )


def _servers(given: Given) -> tuple[str, ...]:
    try:
        return check_servers(given.words("servers", DEFAULT_SERVERS))
    except ValueError as error:
        raise ConfigurationError(f"servers: {error}") from None


def _access(given: Given) -> Access:
    access = Access(
        creds=given.path("creds"),
        nkey=given.path("nkey"),
        user=given.text("user"),
        password=given.options.get("password", ""),
        tls_ca=given.path("tlsCa"),
        tls_cert=given.path("tlsCert"),
        tls_key=given.path("tlsKey"),
        tls_first=given.flag("tlsFirst", False),
    )
    ways = [name for name in ("creds", "nkey", "user") if given.text(name)]
    if len(ways) > 1:
        raise ConfigurationError(f"{ways[0]} and {ways[1]} are two ways to say who this is")
    if bool(access.user) != bool(access.password):
        raise ConfigurationError("user and password come together; give that, or a passwordFile")
    if access.tls_key and not access.tls_cert:
        raise ConfigurationError("tlsKey is the key of a certificate; give that with tlsCert")
    return access


def _limits(given: Given) -> Limits:
    return Limits(
        most_bytes=given.size("maxBytesPerTrigger"),
        most_offsets=given.size("maxOffsetsPerTrigger"),
        least_offsets=given.size("minOffsetsPerTrigger"),
        longest_delay=given.length("maxTriggerDelay", _TRIGGER_DELAY),
        least_pieces=given.size("minPartitions") or 1,
        longest_piece=given.size("maxRecordsPerPartition"),
    )


def _show(given: Given) -> Show:
    explode = given.flag("explode", False)
    as_text = given.choice("lineType", "string", "binary") == "string"
    # a message's headers beside every one of its lines are rarely wanted
    return Show(given.flag("includeHeaders", not explode), explode, as_text)


def _stream(name: str) -> str:
    if not name or any(sign in name for sign in " .*>/\\\t\r\n"):
        raise ConfigurationError(f"stream {name!r} is not a name of a stream")
    return name


def _subjects(given: Given) -> tuple[str, ...]:
    if given.text("partitions"):
        raise ConfigurationError("partitions and subjects are two ways to choose; give one of them")
    subjects = tuple(dict.fromkeys(given.words("subjects")))
    for subject in subjects:
        if not is_pattern(subject):
            raise ConfigurationError(f"subjects {subject!r} is not a filter such as logs.*.web01")
    for one, other in combinations(subjects, 2):
        if meet(one, other):
            raise ConfigurationError(
                f"subjects {one} and {other} overlap: what both take in would be read twice"
            )
    return subjects


def _partitions(given: Given) -> tuple[str, ...] | None:
    text = given.text("partitions", "all")
    if text.lower() == "all":
        return None
    words = given.words("partitions")
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigurationError(f"partitions {text!r} is neither `all` nor a list such as 0,3")
    return tuple(map(partition_filter, sorted({int(word) for word in words})))


def _covered(
    chosen: tuple[str, ...] | None, starting: Position | None, ending: Position | None
) -> tuple[str, ...] | None:
    given = [position for position in (starting, ending) if isinstance(position, dict)]
    if chosen is None:
        chosen = tuple(given[0]) if given else None
    for position in given:
        if missing := [subject for subject in chosen or () if subject not in position]:
            raise ConfigurationError(f"the offsets given name no sequence for {named(missing[0])}")
    return chosen


def _position(given: Given, offsets: str, timestamp: str, by_partition: bool) -> Position | None:
    if (time := given.time(timestamp)) is not None:
        return time
    text = given.text(offsets)
    if not text:
        return None
    if text.lower() in {edge.value for edge in Edge}:
        return Edge(text.lower())
    return _sequences(text, offsets, by_partition)


def _sequences(text: str, option: str, by_partition: bool) -> dict[str, int]:
    try:
        given = {name: int(sequence) for name, sequence in json.loads(text).items()}
        if by_partition:
            given = {partition_filter(int(name)): given[name] for name in sorted(given, key=int)}
    except (ValueError, TypeError, AttributeError):
        given = {}
    if not given or min(given.values()) < 0 or not all(map(is_pattern, given)):
        raise ConfigurationError(
            f'{option} {text!r} is neither earliest, nor latest, nor sequences such as {{"3": 123}}'
        )
    return given
