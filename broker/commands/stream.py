"""`logbroker stream` and `logbroker consumer`: all that there is at the broker, also what `import` or others made."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from broker.app.command_line import YES, PlainGroup, ask
from broker.app.exits import OperatorError
from broker.app.table import show, table
from broker.app.units import format_size
from broker.app.untrusted import printable
from broker.client.connection import Connection
from broker.commands.shared import JSON, asking, looking, print_json, with_settings
from broker.inspect.ask import streams_of
from broker.settings import BrokerSettings
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = ["consumer", "stream"]

_BUCKETS = f"{CONFIG_BUCKET}|{OFFSETS_BUCKET}|{POSITIONS_BUCKET}"
_OWN = re.compile(rf"({STREAM}(_[0-9]+)?|KV_({_BUCKETS}))(\.receiver-p[0-9]+)?")
_NAME = click.argument("name", metavar="STREAM")
_CONSUMER = click.argument("consumer_name", metavar="CONSUMER")
Info = Mapping[str, Any]


@click.group(cls=PlainGroup)
def stream() -> None:
    """Show the streams of the broker, buckets included, and remove those that are not logbroker's own."""


@click.group(cls=PlainGroup)
def consumer() -> None:
    """Show the consumers of a stream, and remove those that are not of receivers."""


@stream.command(name="ls")
@JSON
@with_settings()
def list_streams(settings: BrokerSettings, as_json: bool) -> None:
    """List all streams."""

    def row(info: Info) -> Sequence[str]:
        state, config = info["state"], info["config"]
        numbers = (f"{state['messages']:,}", format_size(state["bytes"]))
        return config["name"], *numbers, str(state["consumer_count"]), _subjects(config)

    found = looking(settings, "stream ls", lambda c: c.pages("STREAM.LIST", "streams"))
    head = ("STREAM", "MESSAGES", "SIZE", "CONSUMERS", "SUBJECTS")
    print_json(found) if as_json else show(table(head, list(map(row, found)), (0, 4)))


@consumer.command(name="ls")
@click.argument("name", metavar="[STREAM]", required=False)
@JSON
@with_settings()
def list_consumers(settings: BrokerSettings, name: str | None, as_json: bool) -> None:
    """List the consumers of a stream, by default of all that hold lines."""

    def row(info: Info) -> Sequence[str]:
        waiting = (f"{info['num_pending']:,}", f"{info['num_ack_pending']:,}")
        acked = str(info["ack_floor"]["stream_seq"])
        return info["name"], info["stream_name"], *waiting, acked, _subjects(info["config"])

    async def look(connection: Connection) -> list[Info]:
        names = (_checked(name),) if name else await streams_of(connection)
        lists = [await connection.pages(f"CONSUMER.LIST.{one}", "consumers") for one in names]
        return [info for one in lists for info in one]

    found = looking(settings, "consumer ls", look)
    head = ("CONSUMER", "STREAM", "PENDING", "UNACKED", "ACKED UNTIL", "SUBJECTS")
    print_json(found) if as_json else show(table(head, list(map(row, found)), (0, 1, 5)))


@stream.command(name="info")
@_NAME
@JSON
@with_settings()
def show_stream(settings: BrokerSettings, name: str, as_json: bool) -> None:
    """Show the configuration and the state of a stream."""
    _show(settings, f"STREAM.INFO.{_checked(name)}", as_json=as_json)


@consumer.command(name="info")
@_NAME
@_CONSUMER
@JSON
@with_settings()
def show_consumer(settings: BrokerSettings, name: str, consumer_name: str, as_json: bool) -> None:
    """Show the configuration and the state of a consumer."""
    call = f"CONSUMER.INFO.{_checked(name)}.{_checked(consumer_name)}"
    _show(settings, call, as_json=as_json)


@stream.command(name="rm")
@_NAME
@YES
@with_settings()
def remove_stream(settings: BrokerSettings, name: str, yes: bool) -> None:
    """Remove a stream and all that it holds; not one of logbroker's own."""
    info = _removable(settings, "STREAM", _checked(name))
    held = f"{info['state']['messages']:,} messages ({format_size(info['state']['bytes'])})"
    _remove(settings, "STREAM", name, f"stream {name} with {held}", yes=yes)


@consumer.command(name="rm")
@_NAME
@_CONSUMER
@YES
@with_settings()
def remove_consumer(settings: BrokerSettings, name: str, consumer_name: str, yes: bool) -> None:
    """Remove a consumer; not one of a receiver."""
    path = f"{_checked(name)}.{_checked(consumer_name)}"
    _removable(settings, "CONSUMER", path)
    _remove(settings, "CONSUMER", path, f"consumer {consumer_name} of stream {name}", yes=yes)


def _removable(settings: BrokerSettings, kind: str, path: str) -> Info:
    """Return the state of what is to be removed; raises `OperatorError` for what `logbroker apply` would make again."""
    if _OWN.fullmatch(path):
        raise OperatorError(
            f"{path} is logbroker's own and stays; `logbroker purge` removes messages of a stream"
        )
    return looking(settings, f"{kind.lower()} rm", lambda c: c.api(f"{kind}.INFO.{path}"))


def _remove(settings: BrokerSettings, kind: str, path: str, named: str, *, yes: bool) -> None:
    if not yes:
        ask(f"Remove {named} for good?")
    asking(settings, f"{kind.lower()} rm", lambda c: c.api(f"{kind}.DELETE.{path}"))
    click.echo(f"removed {named}")


def _checked(name: str) -> str:
    if not name or not name.isprintable() or set(name) & set(" .*>/\\"):
        raise click.UsageError(f"{name!r} cannot be the name of a stream or a consumer")
    return name


def _show(settings: BrokerSettings, call: str, *, as_json: bool) -> None:
    info = looking(settings, call.lower(), lambda c: c.api(call))
    if as_json:
        print_json(info)
        return
    fields = list(_flat(info))
    width = max(len(name) for name, _ in fields)
    click.echo("\n".join(printable(f"{name:<{width}}  {value}") for name, value in fields))


def _flat(values: Info, before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)


def _subjects(config: Info) -> str:
    names = config.get("subjects") or config.get("filter_subjects")
    names = names or list(filter(None, [config.get("filter_subject")]))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more or "-"
