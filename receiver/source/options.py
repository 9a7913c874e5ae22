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
        given = _Given.among(options)
        return cls(
            servers=_servers(given),
            access=_access(given),
            stream=_stream(given.text("stream")),
            subjects=_subjects(given),
            starting=_position(given, "startingOffsets", "startingTimestamp"),
            ending=_position(given, "endingOffsets", "endingTimestamp"),
            most_bytes=given.size("maxBytesPerTrigger"),
            most_offsets=given.size("maxOffsetsPerTrigger"),
            pieces=given.size("minPartitions") or 1,
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            show=_show(given),
        )


@dataclass(frozen=True, slots=True)
class _Given:
    """Options by their names in small letters."""

    options: Mapping[str, str]

    @classmethod
    def among(cls, options: Mapping[str, str]) -> "_Given":
        """Take the options; refuse an unknown one without showing its value."""
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(set(given) - {name.lower() for name in KNOWN} - {"path"})  # load("…")
        if unknown:
            raise ConfigurationError(
                f"jetstream has no option {unknown[0]!r}; there are {', '.join(KNOWN)}"
            )
        return cls(given)

    def text(self, name: str, default: str = "") -> str:
        return self.options.get(name.lower(), default).strip()

    def words(self, name: str, default: str = "") -> tuple[str, ...]:
        """Return the words between commas, each once."""
        words = (word.strip() for word in self.text(name, default).split(","))
        return tuple(dict.fromkeys(word for word in words if word))

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return Path(text) if text else None

    def choice(self, name: str, *choices: str) -> str:
        """Return one of the choices, the first by default."""
        text = self.text(name, choices[0]).lower()
        if text not in choices:
            raise ConfigurationError(f"{name} {text!r} is not one of {', '.join(choices)}")
        return text

    def flag(self, name: str, default: bool) -> bool:
        choices = ("true", "false") if default else ("false", "true")
        return self.choice(name, *choices) == "true"

    def size(self, name: str) -> int | None:
        """Return a positive number, in which k, m and g count 1024, 1024² and 1024³; None when not given."""
        text = self.text(name).lower()
        if not text:
            return None
        number, unit = (text[:-1], _SUFFIXES[text[-1]]) if text[-1] in _SUFFIXES else (text, 1)
        if not _SEQUENCE.fullmatch(number):
            raise ConfigurationError(
                f"{name} {text!r} is not a positive number (k, m, g may follow)"
            )
        return int(number) * unit

    def time(self, name: str) -> datetime | None:
        """Return a moment: milliseconds since 1970 as in Spark's Kafka source, or ISO 8601, UTC unless it says otherwise."""
        text = self.text(name)
        if not text:
            return None
        try:
            if text.isdigit():
                return _EPOCH + timedelta(milliseconds=int(text))
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            raise ConfigurationError(
                f"{name} {text!r} is neither milliseconds since 1970 nor a time such as 2026-11-20T12:00:00Z"
            ) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _servers(given: _Given) -> tuple[str, ...]:
    try:
        return check_servers(given.words("servers", _DEFAULT_SERVERS))
    except ValueError as error:
        raise ConfigurationError(f"servers: {error}") from None


def _access(given: _Given) -> Access:
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


def _show(given: _Given) -> Show:
    explode = given.flag("explode", False)
    as_text = given.choice("lineType", "string", "binary") == "string"
    # a message's headers beside every one of its lines are rarely wanted
    return Show(given.flag("includeHeaders", not explode), explode, as_text)


def _stream(name: str) -> str | None:
    if not name:
        return None
    if any(sign in name for sign in " .*>/\\\t\r\n"):
        raise ConfigurationError(f"stream {name!r} is not a name of a stream")
    return name


def _position(given: _Given, offsets: str, timestamp: str) -> Position | None:
    if (time := given.time(timestamp)) is not None:
        return time
    text = given.text(offsets).lower()
    if not text:
        return None
    if text in {edge.value for edge in Edge}:
        return Edge(text)
    if not _SEQUENCE.fullmatch(text):
        raise ConfigurationError(
            f"{offsets} {text!r} is neither earliest, nor latest, nor a sequence such as 123"
        )
    return int(text)


def _subjects(given: _Given) -> tuple[str, ...] | None:
    hosts = tuple(map(_of_host, given.words("hosts")))
    if hosts and given.text("partitions"):
        raise ConfigurationError("partitions and hosts are two ways to choose; give one")
    return hosts or _of_partitions(given)


def _of_partitions(given: _Given) -> tuple[str, ...] | None:
    words = given.words("partitions", "all")
    if words == ("all",):
        return None
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        text = given.text("partitions")
        raise ConfigurationError(f"partitions {text!r} is neither `all` nor a list such as 0,3")
    return tuple(map(partition_filter, sorted(set(map(int, words)))))


def _of_host(host: str) -> str:
    try:
        return host_filter(validate_host(host))
    except InvalidHost as error:
        raise ConfigurationError(f"hosts: {error}") from None
