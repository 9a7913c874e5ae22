"""`logbroker stream` and `logbroker consumer`: all that there is at the broker, also what `import` or others made."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import click

from broker.app.command_line import YES, PlainGroup, ask
from broker.app.exits import OperatorError
from broker.app.table import show, table
from broker.app.units import format_size
from broker.app.untrusted import printable
from broker.client.connection import Connection
from broker.commands.shared import JSON, asking, looking, with_settings
from broker.inspect.ask import streams_of
from broker.settings import BrokerSettings
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = ["consumer", "stream"]

_OWN_STREAM = re.compile(
    rf"{STREAM}(_[0-9]+)?|KV_({CONFIG_BUCKET}|{OFFSETS_BUCKET}|{POSITIONS_BUCKET})"
)
_OWN_CONSUMER = re.compile(r"receiver-p[0-9]+")
_Columns = dict[str, Callable[[Mapping[str, Any]], str]]
_NAME = click.argument("name", metavar="STREAM")
_CONSUMER = click.argument("consumer_name", metavar="CONSUMER")


@click.group(cls=PlainGroup)
def stream() -> None:
    """Show the streams of the broker, buckets included, and remove those that are not logbroker's own."""


@stream.command(name="ls")
@JSON
@with_settings()
def list_streams(settings: BrokerSettings, as_json: bool) -> None:
    """List all streams."""
    found = looking(settings, "stream ls", lambda c: c.pages("STREAM.LIST", "streams"))
    columns: _Columns = {
        "STREAM": lambda info: info["config"]["name"],
        "MESSAGES": lambda info: f"{info['state']['messages']:,}",
        "SIZE": lambda info: format_size(info["state"]["bytes"]),
        "CONSUMERS": lambda info: str(info["state"]["consumer_count"]),
        "LAST": lambda info: _time(info["state"], "last_ts"),
        "SUBJECTS": lambda info: _subjects(info["config"]),
    }
    _list(found, columns, {0, 4, 5}, as_json=as_json)


@stream.command(name="info")
@_NAME
@JSON
@with_settings()
def show_stream(settings: BrokerSettings, name: str, as_json: bool) -> None:
    """Show the configuration and the state of a stream."""
    _show(settings, f"STREAM.INFO.{_checked(name)}", as_json=as_json)


@stream.command(name="rm")
@_NAME
@YES
@with_settings()
def remove_stream(settings: BrokerSettings, name: str, yes: bool) -> None:
    """Remove a stream and all that it holds; not one of logbroker's own."""
    if _OWN_STREAM.fullmatch(_checked(name)):
        raise OperatorError(
            f"{name} is a stream of logbroker's own, which `logbroker apply` would make again; "
            "`logbroker purge` removes messages"
        )
    info = looking(settings, "stream rm", lambda c: c.api(f"STREAM.INFO.{name}"))
    held = f"{info['state']['messages']:,} messages ({format_size(info['state']['bytes'])})"
    if not yes:
        ask(f"Remove stream {name} with {held} for good?")
    asking(settings, "stream rm", lambda c: c.api(f"STREAM.DELETE.{name}"))
    click.echo(f"removed stream {name} with {held}")


@click.group(cls=PlainGroup)
def consumer() -> None:
    """Show the consumers of a stream, and remove those that are not of receivers."""


@consumer.command(name="ls")
@click.argument("name", metavar="[STREAM]", required=False)
@JSON
@with_settings()
def list_consumers(settings: BrokerSettings, name: str | None, as_json: bool) -> None:
    """List the consumers of a stream, by default of all that hold lines."""

    async def look(connection: Connection) -> list[dict[str, Any]]:
        names = (_checked(name),) if name else await streams_of(connection)
        pages = [await connection.pages(f"CONSUMER.LIST.{one}", "consumers") for one in names]
        return [info for page in pages for info in page]

    found = looking(settings, "consumer ls", look)
    columns: _Columns = {
        "CONSUMER": lambda info: info["name"],
        "STREAM": lambda info: info["stream_name"],
        "PENDING": lambda info: f"{info['num_pending']:,}",
        "UNACKED": lambda info: f"{info['num_ack_pending']:,}",
        "ACKED UNTIL": lambda info: str(info["ack_floor"]["stream_seq"]),
        "CREATED": lambda info: _time(info, "created"),
        "SUBJECTS": lambda info: _subjects(info["config"]),
    }
    _list(found, columns, {0, 1, 5, 6}, as_json=as_json)


@consumer.command(name="info")
@_NAME
@_CONSUMER
@JSON
@with_settings()
def show_consumer(settings: BrokerSettings, name: str, consumer_name: str, as_json: bool) -> None:
    """Show the configuration and the state of a consumer."""
    call = f"CONSUMER.INFO.{_checked(name)}.{_checked(consumer_name)}"
    _show(settings, call, as_json=as_json)


@consumer.command(name="rm")
@_NAME
@_CONSUMER
@YES
@with_settings()
def remove_consumer(settings: BrokerSettings, name: str, consumer_name: str, yes: bool) -> None:
    """Remove a consumer; not one of a receiver."""
    place = f"{_checked(name)}.{_checked(consumer_name)}"
    if _OWN_STREAM.fullmatch(name) and _OWN_CONSUMER.fullmatch(consumer_name):
        raise OperatorError(
            f"{consumer_name} is the consumer of a receiver's partition, and stays as long as the partition"
        )
    looking(settings, "consumer rm", lambda c: c.api(f"CONSUMER.INFO.{place}"))
    if not yes:
        ask(f"Remove consumer {consumer_name} of stream {name}?")
    asking(settings, "consumer rm", lambda c: c.api(f"CONSUMER.DELETE.{place}"))
    click.echo(f"removed consumer {consumer_name} of stream {name}")


def _checked(name: str) -> str:
    if not name or not name.isprintable() or set(name) & set(" .*>/\\"):
        raise click.UsageError(f"{name!r} cannot be the name of a stream or a consumer")
    return name


def _list(
    found: list[dict[str, Any]], columns: _Columns, left: Collection[int], *, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        rows = [[cell(info) for cell in columns.values()] for info in found]
        show(table(tuple(columns), rows, left))


def _show(settings: BrokerSettings, call: str, *, as_json: bool) -> None:
    info = looking(settings, call.lower(), lambda c: c.api(call))
    if as_json:
        click.echo(json.dumps(info, indent=2))
        return
    told = list(_flat(info))
    width = max(len(name) for name, _ in told)
    click.echo("\n".join(printable(f"{name:<{width}}  {value}") for name, value in told))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)


def _subjects(config: Mapping[str, Any]) -> str:
    found = config.get("subjects") or config.get("filter_subjects") or []
    named = found or [config["filter_subject"]] * ("filter_subject" in config)
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return ", ".join(named[:3]) + more or "-"


def _time(values: Mapping[str, Any], name: str) -> str:
    text = str(values.get(name, ""))
    return "-" if not text or text.startswith("0001-") else f"{text[:16].replace('T', ' ')}Z"
