"""The options of the data source, as in Spark's Kafka source, and the columns of its rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.types import MapType, StringType, StructType

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import EARLIEST, LATEST, Moment, parse_time, to_datetime
from nats_logship.client.access import Access, check_servers
from nats_logship.wire.subjects import InvalidHost, host_filter, partition_filter, validate_host

OPTIONS = (
    *("servers", "stream", "partitions", "hosts"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
    *("maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "explode", "includeHeaders"),
    "pushDown",
    *("creds", "nkey", "user", "password", "tlsCa", "tlsCert", "tlsKey", "tlsFirst"),
)

_DEFAULT_SERVER = "nats://127.0.0.1:4222"
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_PARTITION = re.compile(r"[0-9]{1,6}")
_STREAM = re.compile(r"[^\s.*>/\\]*")

_Given = Mapping[str, str]
"""Options by their names in lower case."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach the streams, which messages to read, and which rows to make of them.

    `stream` None: all streams with partitions. `subjects` None: all subjects. `starting` None:
    earliest in a batch, latest in a streaming query. `max_offsets` limits a micro-batch; a query
    has at least `min_partitions` tasks. Rows are sections of messages, or with `explode` lines;
    they have the column `headers` or not. `columns` are those that the query wants; empty: all.
    With `push_down` filters of a batch query say which messages are fetched: those from all
    moments `since` on that are before all moments `before`.
    """

    servers: tuple[str, ...] = field(default=(_DEFAULT_SERVER,), repr=False)  # may hold a password
    access: Access = field(default_factory=Access)
    stream: str | None = None
    subjects: tuple[str, ...] | None = None
    starting: Moment | None = None
    ending: Moment | None = None
    max_offsets: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True
    headers: bool = True
    explode: bool = False
    push_down: bool = False
    columns: tuple[str, ...] = ()
    since: tuple[Moment, ...] = ()
    before: tuple[Moment, ...] = ()

    @classmethod
    def parse(cls, options: _Given) -> "SourceOptions":
        """Parse options, with names in any case; raise `ConfigurationError` for a wrong one."""
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(set(given) - {name.lower() for name in OPTIONS} - {"path"})  # load("…")
        if unknown:
            raise ConfigurationError(
                f"jetstream has no option {unknown[0]!r}; it has {', '.join(OPTIONS)}"
            )
        stream = _text(given, "stream")
        if not _STREAM.fullmatch(stream):
            raise _wrong("stream", stream, "the name of a stream")
        try:
            servers = check_servers((_text(given, "servers") or _DEFAULT_SERVER,))
        except ValueError as error:
            raise ConfigurationError(f"servers: {error}") from None
        explode = _flag(given, "explode", default=False)
        return cls(
            servers=servers,
            access=_access(given),
            stream=stream or None,
            subjects=_subjects(given),
            starting=_position(given, "starting"),
            ending=_position(given, "ending"),
            max_offsets=_size(given, "maxOffsetsPerTrigger"),
            min_partitions=_size(given, "minPartitions") or 1,
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            # the headers of a message are rarely wanted with each of its lines
            headers=_flag(given, "includeHeaders", default=not explode),
            explode=explode,
            push_down=_flag(given, "pushDown", default=False),
        )


def _wrong(name: str, text: str, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{name} {text!r} is not {wanted}")


def _text(given: _Given, name: str) -> str:
    return given.get(name.lower(), "").strip()


def _split(given: _Given, name: str) -> list[str]:
    """Return the names between commas, each once."""
    return list(dict.fromkeys(filter(None, map(str.strip, _text(given, name).split(",")))))


def _flag(given: _Given, name: str, *, default: bool) -> bool:
    text = _text(given, name).lower() or str(default).lower()
    if text not in {"true", "false"}:
        raise _wrong(name, text, "true or false")
    return text == "true"


def _size(given: _Given, name: str) -> int | None:
    """Return a positive number; None if it is not given."""
    text = _text(given, name)
    if text and not _NUMBER.fullmatch(text):
        raise _wrong(name, text, "a positive number")
    return int(text) if text else None


def _access(given: _Given) -> Access:
    def path(name: str) -> Path | None:
        return Path(text) if (text := _text(given, name)) else None

    return Access(
        creds=path("creds"),
        nkey=path("nkey"),
        tls_ca=path("tlsCa"),
        tls_cert=path("tlsCert"),
        tls_key=path("tlsKey"),
        user=_text(given, "user"),
        password=given.get("password", ""),
        tls_first=_flag(given, "tlsFirst", default=False),
    )


def _position(given: _Given, edge: str) -> Moment | None:
    if time := _text(given, f"{edge}Timestamp"):
        try:  # milliseconds as in Spark's Kafka source
            return to_datetime(int(time) * 1_000_000 if time.isdigit() else parse_time(time))
        except (ValueError, OverflowError):
            wanted = "milliseconds since 1970 or a time such as 2026-11-20T12:00:00Z"
            raise _wrong(f"{edge}Timestamp", time, wanted) from None
    text = _text(given, f"{edge}Offsets").lower()
    if not text or text in {"earliest", "latest"}:
        return {"": None, "earliest": EARLIEST, "latest": LATEST}[text]
    if not _NUMBER.fullmatch(text):
        raise _wrong(f"{edge}Offsets", text, "earliest, latest, or a sequence such as 123")
    return int(text)


def _subjects(given: _Given) -> tuple[str, ...] | None:
    hosts, numbers = _split(given, "hosts"), _split(given, "partitions")
    if hosts and numbers:
        raise ConfigurationError("partitions and hosts both choose subjects; give one of them")
    if hosts:
        try:
            return tuple(host_filter(validate_host(host)) for host in hosts)
        except InvalidHost as error:
            raise ConfigurationError(f"hosts: {error}") from None
    if not numbers or numbers == ["all"]:
        return None
    if not all(map(_PARTITION.fullmatch, numbers)):
        raise _wrong("partitions", _text(given, "partitions"), "`all` or a list such as 0,3")
    return tuple(map(partition_filter, sorted(set(map(int, numbers)))))


_SPAN = StructType().add("file", "string").add("start", "long").add("end", "long")
_TYPES = {"span": _SPAN, "map": MapType(StringType(), StringType())}
_MESSAGE = (
    "partition integer, sequence long, time timestamp, subject string, host string, file string"
)
_SECTION = "section integer, span span, lines integer, payload binary"
_LINE = "pos integer, record integer, line string, piece boolean"


def columns(options: SourceOptions) -> StructType:
    """Return the columns of rows, sections or lines: those that the query wants, or all."""
    text = f"{_MESSAGE}, {_LINE if options.explode else _SECTION}"
    text += ", headers map" if options.headers else ""
    known, found = dict(one.split() for one in text.split(", ")), StructType()
    for name in options.columns or known:
        found.add(name, _TYPES.get(known[name], known[name]))
    return found


def choose_columns(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """Return the names of the columns that a query wants by its own schema.

    Raises `ConfigurationError` for a column that rows do not have, or not of this type.
    """
    known = columns(options)
    for column in schema:
        if column not in known.fields:
            wanted = ", ".join(one.simpleString().replace(":", " ") for one in known)
            raise ConfigurationError(
                f"jetstream has no column {column.simpleString().replace(':', ' ', 1)!r}"
                f"{'' if column.nullable else ' NOT NULL'}; with these options it has {wanted}"
            )
    return tuple(schema.names)
