"""The options of the data source, read once: names and meanings as in Spark's Kafka source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import EPOCH, Moment
from nats_logship.client.access import Access, check_servers
from nats_logship.client.find import EARLIEST, LATEST
from nats_logship.wire.subjects import InvalidHost, host_filter, partition_filter, validate_host

KNOWN = (
    *("servers", "stream", "partitions", "hosts"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
    *("maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "explode", "includeHeaders"),
    *("creds", "nkey", "user", "password", "tlsCa", "tlsCert", "tlsKey", "tlsFirst"),
)

_DEFAULT_SERVER = "nats://127.0.0.1:4222"
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_PARTITION = re.compile(r"[0-9]{1,6}")
_STREAM = re.compile(r"[^\s.*>/\\]*")

_Given = Mapping[str, str]
"""Options by their names in small letters."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach the stream, what to read of it, and which rows to make.

    `stream` None: all that partitions live in. `subjects` None: all that these hold. `starting` None: earliest for a batch,
    latest for a stream. `most_offsets` bounds a micro-batch; a query has at least `pieces` tasks.
    Rows are sections of messages, or with `explode` their lines; with or without `headers`.
    """

    servers: tuple[str, ...] = field(default=(_DEFAULT_SERVER,), repr=False)  # may hold a password
    access: Access = field(default_factory=Access)
    stream: str | None = None
    subjects: tuple[str, ...] | None = None
    starting: Moment | None = None
    ending: Moment | None = None
    most_offsets: int | None = None
    pieces: int = 1
    fail_on_data_loss: bool = True
    headers: bool = True
    explode: bool = False

    @classmethod
    def parse(cls, options: _Given) -> "SourceOptions":
        """Read what a user gave, in any case of letters; raise `ConfigurationError` naming the option that is wrong."""
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(set(given) - {name.lower() for name in KNOWN} - {"path"})  # load("…")
        if unknown:
            raise ConfigurationError(
                f"jetstream has no option {unknown[0]!r}; there are {', '.join(KNOWN)}"
            )
        stream = _text(given, "stream")
        if not _STREAM.fullmatch(stream):
            raise _wrong("stream", stream, "a name of a stream")
        explode = _flag(given, "explode", default=False)
        try:
            servers = check_servers((_text(given, "servers") or _DEFAULT_SERVER,))
        except ValueError as error:
            raise ConfigurationError(f"servers: {error}") from None
        return cls(
            servers=servers,
            access=_access(given),
            stream=stream or None,
            subjects=_subjects(given),
            starting=_position(given, "starting"),
            ending=_position(given, "ending"),
            most_offsets=_size(given, "maxOffsetsPerTrigger"),
            pieces=_size(given, "minPartitions") or 1,
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            # a message's headers beside every one of its lines are rarely wanted
            headers=_flag(given, "includeHeaders", default=not explode),
            explode=explode,
        )


def _wrong(name: str, text: str, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{name} {text!r} is not {wanted}")


def _text(given: _Given, name: str) -> str:
    return given.get(name.lower(), "").strip()


def _words(given: _Given, name: str) -> list[str]:
    """Return the words between commas, each once."""
    return list(dict.fromkeys(filter(None, map(str.strip, _text(given, name).split(",")))))


def _flag(given: _Given, name: str, *, default: bool) -> bool:
    text = _text(given, name).lower() or str(default).lower()
    if text not in {"true", "false"}:
        raise _wrong(name, text, "true or false")
    return text == "true"


def _size(given: _Given, name: str) -> int | None:
    """Return a positive number; None when not given."""
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
        user=_text(given, "user"),
        password=given.get("password", ""),
        tls_ca=path("tlsCa"),
        tls_cert=path("tlsCert"),
        tls_key=path("tlsKey"),
        tls_first=_flag(given, "tlsFirst", default=False),
    )


def _position(given: _Given, edge: str) -> Moment | None:
    if time := _text(given, f"{edge}Timestamp"):
        try:
            if time.isdigit():  # as in Spark's Kafka source
                return EPOCH + timedelta(milliseconds=int(time))
            moment = datetime.fromisoformat(time)
        except (ValueError, OverflowError):
            wanted = "milliseconds since 1970 or a time such as 2026-11-20T12:00:00Z"
            raise _wrong(f"{edge}Timestamp", time, wanted) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    text = _text(given, f"{edge}Offsets").lower()
    if not text or text in {"earliest", "latest"}:
        return {"": None, "earliest": EARLIEST, "latest": LATEST}[text]
    if not _NUMBER.fullmatch(text):
        raise _wrong(f"{edge}Offsets", text, "earliest, latest, or a sequence such as 123")
    return int(text)


def _subjects(given: _Given) -> tuple[str, ...] | None:
    hosts, numbers = _words(given, "hosts"), _words(given, "partitions")
    if hosts and numbers:
        raise ConfigurationError("partitions and hosts are two ways to choose; give one")
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
