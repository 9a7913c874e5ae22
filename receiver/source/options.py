"""The options of the data source, read once: names and meanings as in Spark's Kafka source. Values only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.client.access import Access, check_servers
from broker.wire.subjects import InvalidHost, host_filter, partition_filter, validate_host

__all__ = ["KNOWN", "PROGRAM", "Edge", "Position", "Show", "SourceOptions"]

KNOWN = (
    *("servers", "stream", "partitions", "hosts"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
    *("maxBytesPerTrigger", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss"),
    *("explode", "lineType", "includeHeaders"),
    *("creds", "nkey", "user", "password", "passwordFile"),
    *("tlsCa", "tlsCert", "tlsKey", "tlsFirst"),
)

PROGRAM = "spark jetstream"
"""What the broker's views of connections call a query."""
_DEFAULT_SERVERS = "nats://127.0.0.1:4222"
_SUFFIXES = {"k": 1024, "m": 1024**2, "g": 1024**3}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEQUENCE = re.compile(r"[1-9][0-9]{0,18}")
_PARTITION = re.compile(r"[0-9]{1,6}")
_STREAM = re.compile(r"[^\s.*>/\\]+")


class Edge(Enum):
    """A place in the stream that has a name."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = Edge | datetime | int
"""Where to begin or to end: an edge, a time of storage, or a sequence."""


@dataclass(frozen=True, slots=True)
class Show:
    """Which rows: sections or their lines (as strings or bytes), with or without headers."""

    headers: bool = True
    explode: bool = False
    as_text: bool = True


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach the stream and what to read of it.

    `stream` None: all that partitions live in. `subjects` None: all that these hold. `starting` None: earliest for a batch, latest for a stream. `ending` None: latest.
    `most_bytes` (as stored) and `most_offsets` bound a micro-batch; a query has at least `pieces` tasks.
    """

    servers: tuple[str, ...] = field(repr=False)  # addresses may hold a password
    access: Access
    stream: str | None
    subjects: tuple[str, ...] | None
    starting: Position | None
    ending: Position | None
    most_bytes: int | None
    most_offsets: int | None
    pieces: int
    fail_on_data_loss: bool
    show: Show

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Read what a user gave, in any case of letters; raise `ConfigurationError` naming the option that is wrong."""
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(set(given) - {name.lower() for name in KNOWN} - {"path"})  # load("…")
        if unknown:
            raise ConfigurationError(
                f"jetstream has no option {unknown[0]!r}; there are {', '.join(KNOWN)}"
            )
        stream = _text(given, "stream")
        if stream and not _STREAM.fullmatch(stream):
            raise _wrong("stream", stream, "a name of a stream")
        explode = _flag(given, "explode", default=False)
        return cls(
            servers=_servers(given),
            access=_access(given),
            stream=stream or None,
            subjects=_subjects(given),
            starting=_position(given, "startingOffsets", "startingTimestamp"),
            ending=_position(given, "endingOffsets", "endingTimestamp"),
            most_bytes=_size(given, "maxBytesPerTrigger"),
            most_offsets=_size(given, "maxOffsetsPerTrigger"),
            pieces=_size(given, "minPartitions") or 1,
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            # a message's headers beside every one of its lines are rarely wanted
            show=Show(
                _flag(given, "includeHeaders", default=not explode),
                explode,
                _choice(given, "lineType", "string", "binary") == "string",
            ),
        )


_Given = Mapping[str, str]
"""Options by their names in small letters."""


def _wrong(name: str, text: str, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{name} {text!r} is not {wanted}")


def _text(given: _Given, name: str, default: str = "") -> str:
    return given.get(name.lower(), default).strip()


def _words(given: _Given, name: str, default: str = "") -> tuple[str, ...]:
    """Return the words between commas, each once."""
    words = (word.strip() for word in _text(given, name, default).split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def _choice(given: _Given, name: str, *choices: str) -> str:
    """Return one of the choices, the first by default."""
    text = _text(given, name, choices[0]).lower()
    if text not in choices:
        raise _wrong(name, text, f"one of {', '.join(choices)}")
    return text


def _flag(given: _Given, name: str, *, default: bool) -> bool:
    choices = ("true", "false") if default else ("false", "true")
    return _choice(given, name, *choices) == "true"


def _size(given: _Given, name: str) -> int | None:
    """Return a positive number, in which k, m and g count 1024, 1024² and 1024³; None when not given."""
    text = _text(given, name).lower()
    if not text:
        return None
    number, unit = (text[:-1], _SUFFIXES[text[-1]]) if text[-1] in _SUFFIXES else (text, 1)
    if not _SEQUENCE.fullmatch(number):
        raise _wrong(name, text, "a positive number (k, m, g may follow)")
    return int(number) * unit


def _servers(given: _Given) -> tuple[str, ...]:
    try:
        return check_servers(_words(given, "servers", _DEFAULT_SERVERS))
    except ValueError as error:
        raise ConfigurationError(f"servers: {error}") from None


def _access(given: _Given) -> Access:
    creds, nkey, tls_ca, tls_cert, tls_key = (
        Path(text) if (text := _text(given, name)) else None
        for name in ("creds", "nkey", "tlsCa", "tlsCert", "tlsKey")
    )
    user, password = _text(given, "user"), given.get("password", "")
    ways = [name for name in ("creds", "nkey", "user") if _text(given, name)]
    if len(ways) > 1:
        raise ConfigurationError(f"{ways[0]} and {ways[1]} are two ways to say who this is")
    if bool(user) != bool(password):
        raise ConfigurationError("user and password come together; give that, or a passwordFile")
    if tls_key and not tls_cert:
        raise ConfigurationError("tlsKey is the key of a certificate; give that with tlsCert")
    return Access(
        creds=creds,
        nkey=nkey,
        user=user,
        password=password,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_first=_flag(given, "tlsFirst", default=False),
    )


def _position(given: _Given, offsets: str, timestamp: str) -> Position | None:
    if time := _text(given, timestamp):
        try:
            if time.isdigit():  # as in Spark's Kafka source
                return _EPOCH + timedelta(milliseconds=int(time))
            moment = datetime.fromisoformat(time)
        except (ValueError, OverflowError):
            wanted = "milliseconds since 1970 or a time such as 2026-11-20T12:00:00Z"
            raise _wrong(timestamp, time, wanted) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    text = _text(given, offsets).lower()
    if not text:
        return None
    if text in {edge.value for edge in Edge}:
        return Edge(text)
    if not _SEQUENCE.fullmatch(text):
        raise _wrong(offsets, text, "earliest, latest, or a sequence such as 123")
    return int(text)


def _subjects(given: _Given) -> tuple[str, ...] | None:
    hosts, words = _words(given, "hosts"), _words(given, "partitions", "all")
    if hosts and _text(given, "partitions"):
        raise ConfigurationError("partitions and hosts are two ways to choose; give one")
    if hosts:
        try:
            return tuple(host_filter(validate_host(host)) for host in hosts)
        except InvalidHost as error:
            raise ConfigurationError(f"hosts: {error}") from None
    if words == ("all",):
        return None
    if not all(_PARTITION.fullmatch(word) for word in words):
        raise _wrong("partitions", _text(given, "partitions"), "`all` or a list such as 0,3")
    return tuple(map(partition_filter, sorted(set(map(int, words)))))
