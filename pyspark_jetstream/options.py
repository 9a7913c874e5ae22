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

_NAMES = ("servers", "stream", "partitions", "hosts", "startingTimestamp", "endingTimestamp")
_OFFSETS = ("startingOffsets", "endingOffsets")
_SIZES = ("maxOffsetsPerTrigger", "minPartitions")
_FLAGS = ("failOnDataLoss", "explode", "includeHeaders", "pushDown", "tlsFirst")
_ACCESS = ("creds", "nkey", "user", "password", "tlsCa", "tlsCert", "tlsKey")
OPTIONS = (*_NAMES, *_OFFSETS, *_SIZES, *_FLAGS, *_ACCESS)

_DEFAULT_SERVER = "nats://127.0.0.1:4222"
_NUMBER = "[1-9][0-9]{0,18}"
_FORMS = (
    (_FLAGS, "true|false", "true or false"),
    (_SIZES, _NUMBER, "a positive number"),
    (_OFFSETS, f"earliest|latest|{_NUMBER}", "earliest, latest, or a sequence such as 123"),
    (("stream",), r"[^\s.*>/\\]*", "the name of a stream"),
    (("partitions",), r"all|[0-9]{1,6}(\s*,\s*[0-9]{1,6})*", "`all` or a list such as 0,3"),
)
"""What the texts of options have to match, in any case, if they are not empty."""


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
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Parse options, with names in any case; raise `ConfigurationError` for a wrong one."""
        given = _read(options)
        is_set = {name: given[name].lower() == "true" for name in _FLAGS}
        try:
            servers = check_servers((given["servers"] or _DEFAULT_SERVER,))
        except ValueError as error:
            raise ConfigurationError(f"servers: {error}") from None
        return cls(
            servers=servers,
            access=_access(given),
            stream=given["stream"] or None,
            subjects=_subjects(given),
            starting=_position(given, "starting"),
            ending=_position(given, "ending"),
            max_offsets=int(given["maxOffsetsPerTrigger"] or 0) or None,
            min_partitions=int(given["minPartitions"] or 1),
            fail_on_data_loss=is_set["failOnDataLoss"] or not given["failOnDataLoss"],
            # the headers of a message are rarely wanted with each of its lines
            headers=is_set["includeHeaders"] if given["includeHeaders"] else not is_set["explode"],
            explode=is_set["explode"],
            push_down=is_set["pushDown"],
        )


def _read(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the texts of all options, empty for those that are not given."""
    given, names = dict.fromkeys(OPTIONS, ""), {name.lower(): name for name in OPTIONS}
    for key, value in options.items():
        if name := names.get(key.lower()):
            given[name] = value if name == "password" else value.strip()
        elif key.lower() != "path":  # load("…")
            raise ConfigurationError(
                f"jetstream has no option {key!r}; it has {', '.join(OPTIONS)}"
            )
    for checked, form, wanted in _FORMS:
        for name in checked:
            if given[name] and not re.fullmatch(form, given[name], re.IGNORECASE):
                raise ConfigurationError(f"{name} {given[name]!r} is not {wanted}")
    return given


def _access(given: Mapping[str, str]) -> Access:
    def path(name: str) -> Path | None:
        return Path(given[name]) if given[name] else None

    return Access(
        creds=path("creds"),
        nkey=path("nkey"),
        tls_ca=path("tlsCa"),
        tls_cert=path("tlsCert"),
        tls_key=path("tlsKey"),
        user=given["user"],
        password=given["password"],
        tls_first=given["tlsFirst"].lower() == "true",
    )


def _position(given: Mapping[str, str], edge: str) -> Moment | None:
    if time := given[f"{edge}Timestamp"]:
        try:  # milliseconds as in Spark's Kafka source
            return to_datetime(int(time) * 1_000_000 if time.isdigit() else parse_time(time))
        except (ValueError, OverflowError):
            wanted = "a time such as 2026-11-20T12:00:00Z, or milliseconds since 1970"
            raise ConfigurationError(f"{edge}Timestamp {time!r} is not {wanted}") from None
    text = given[f"{edge}Offsets"].lower()
    named = {"": None, "earliest": EARLIEST, "latest": LATEST}
    return named[text] if text in named else int(text)


def _subjects(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the filters for hosts or partitions; None for all."""
    hosts, numbers = given["hosts"], given["partitions"]
    if hosts and numbers:
        raise ConfigurationError("partitions and hosts both choose subjects; give one of them")
    if hosts:
        names = sorted(set(map(str.strip, hosts.split(","))))
        try:
            return tuple(host_filter(validate_host(name)) for name in names)
        except InvalidHost as error:
            raise ConfigurationError(f"hosts: {error}") from None
    if numbers.lower() in {"", "all"}:
        return None
    return tuple(map(partition_filter, sorted(set(map(int, numbers.split(","))))))


_SPAN = StructType().add("file", "string").add("start", "long").add("end", "long")
_TYPES = {"span": _SPAN, "map": MapType(StringType(), StringType())}
_MESSAGE = "partition integer, sequence long, time timestamp, subject string, host string"
_SECTION = "file string, section integer, span span, lines integer, payload binary"
_LINE = "file string, pos integer, record integer, line string, piece boolean"


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
