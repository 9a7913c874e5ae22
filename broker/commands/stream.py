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
Info = Mapping[str, Any]
Names = str | tuple[str, ...]


def _group(kind: str, text: str, *metavars: str) -> click.Group:
    """Return a group with `info` and `rm`, which are alike for streams and consumers but for their names."""
    group = PlainGroup(kind, help=text)
    api = kind.upper()
    names_of = click.argument("names", nargs=len(metavars), metavar=" ".join(metavars))

    @group.command(name="info", help=f"Show the configuration and the state of a {kind}.")
    @names_of
    @JSON
    @with_settings()
    def info(settings: BrokerSettings, names: Names, as_json: bool) -> None:
        path = _path(names)
        found = looking(settings, f"{kind} info", lambda c: c.api(f"{api}.INFO.{path}"))
        if as_json:
            print_json(found)
            return
        fields = list(_flat(found))
        width = max(len(name) for name, _ in fields)
        click.echo("\n".join(printable(f"{name:<{width}}  {value}") for name, value in fields))

    @group.command(name="rm", help=f"Remove a {kind} for good; not one of logbroker's own.")
    @names_of
    @YES
    @with_settings()
    def remove(settings: BrokerSettings, names: Names, yes: bool) -> None:
        path = _path(names)
        if _OWN.fullmatch(path):
            raise OperatorError(
                f"{path} is logbroker's own and stays; `logbroker purge` removes messages of a stream"
            )
        found = looking(settings, f"{kind} rm", lambda c: c.api(f"{api}.INFO.{path}"))
        held = f" with {found['state']['messages']:,} messages" if "state" in found else ""
        if not yes:
            ask(f"Remove {kind} {path}{held} for good?")
        asking(settings, f"{kind} rm", lambda c: c.api(f"{api}.DELETE.{path}"))
        click.echo(f"removed {kind} {path}{held}")

    return group


def _path(names: Names) -> str:
    """Return the names of a stream, and perhaps a consumer, as the API takes them."""
    for name in (every := (names,) if isinstance(names, str) else names):
        if not name or not name.isprintable() or set(name) & set(" .*>/\\"):
            raise click.UsageError(f"{name!r} cannot be the name of a stream or a consumer")
    return ".".join(every)


stream = _group(
    "stream",
    "Show the streams of the broker, buckets included, and remove those that are not logbroker's own.",
    "STREAM",
)
consumer = _group(
    "consumer",
    "Show the consumers of a stream, and remove those that are not of receivers.",
    *("STREAM", "CONSUMER"),
)


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
        names = (_path(name),) if name else await streams_of(connection)
        lists = [await connection.pages(f"CONSUMER.LIST.{one}", "consumers") for one in names]
        return [info for one in lists for info in one]

    found = looking(settings, "consumer ls", look)
    head = ("CONSUMER", "STREAM", "PENDING", "UNACKED", "ACKED UNTIL", "SUBJECTS")
    print_json(found) if as_json else show(table(head, list(map(row, found)), (0, 1, 5)))


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
