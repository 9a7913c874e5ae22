"""`logbroker stream` and `logbroker consumer`: list, show and remove streams and consumers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from broker.commands import shared
from broker.inspect.streams import list_streams
from broker.provision.apply import list_all, list_consumers
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedGroup
from nats_logship.app.exits import OperatorError
from nats_logship.app.text import format_count, format_names
from nats_logship.app.units import format_size
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET
from nats_logship.wire.streams import STREAM as LOGS

_BUCKETS = f"{CONFIG_BUCKET}|{OFFSETS_BUCKET}|{POSITIONS_BUCKET}"
_OWN = re.compile(rf"({LOGS}(_[0-9]+)?|KV_({_BUCKETS}))(\.receiver-p[0-9]+)?")
Info = Mapping[str, Any]


def _check_name(text: str) -> str:
    if not text or not text.isprintable() or set(text) & set(" .*>/\\"):
        raise ValueError(f"{text!r} cannot be the name of a stream or a consumer")
    return text


_NAME = shared.make_type(_check_name)


def _join_path(_: click.Context, __: click.Parameter, names: str | tuple[str, ...]) -> str:
    """Return the name of a stream, or of a stream and a consumer, as the API takes it."""
    return names if isinstance(names, str) else ".".join(names)


def _format_line(info: Info) -> str:
    """Return a stream, or a consumer, as a line."""
    if "state" not in info:
        pending, unacked = info["num_pending"], info["num_ack_pending"]
        name = f"{info['stream_name']} {info['name']}"
        return f"{name}: {format_count(pending, 'message')} pending, {unacked} not acknowledged"
    config, state = info["config"], info["state"]
    held = f"{format_count(state['messages'], 'message')}, {format_size(state['bytes'])}"
    return f"{config['name']}: {held}, {format_names(config.get('subjects') or ['no subjects'])}"


async def _ask_info(connection: Connection, kind: str, path: str) -> Info:
    """Return STREAM.INFO or CONSUMER.INFO; raises `OperatorError` if there is none of this name."""
    try:
        return await connection.api(f"{kind.upper()}.INFO.{path}")
    except Rejected as error:
        if error.is_absent:
            kind, path = "stream", path.partition(".")[0]
        elif error.error != ErrorCode.CONSUMER_NOT_FOUND:
            raise
        raise OperatorError(f"there is no {kind} {path}; `logbroker {kind} ls` lists all") from None


def _read_info(settings: BrokerSettings, kind: str, path: str) -> Info:
    return shared.read_from_broker(
        settings, f"{kind} info", lambda connection: _ask_info(connection, kind, path)
    )


def _list(settings: BrokerSettings, kind: str, streams: Sequence[str]) -> list[Info]:
    async def read(connection: Connection) -> list[Info]:
        infos = [await _ask_info(connection, "stream", name) for name in streams]
        if kind == "stream":
            return infos or await list_all(connection, "STREAM.LIST", "streams")
        names = streams or await list_streams(connection)
        return [info for name in names for info in await list_consumers(connection, name)]

    return shared.read_from_broker(settings, f"{kind} ls", read)


def _remove(settings: BrokerSettings, mode: shared.Mode, kind: str, path: str) -> None:
    if _OWN.fullmatch(path):
        raise OperatorError(
            f"{path} is logbroker's own and is not removed; "
            "`logbroker purge` removes messages of a stream"
        )
    state = _read_info(settings, kind, path).get("state")
    held = f" with {format_count(state['messages'], 'message', form=',')}" if state else ""
    if is_agreed := mode.confirm(f"Remove {kind} {path}{held} for good?"):
        call = f"{kind.upper()}.DELETE.{path}"
        shared.run_on_broker(settings, f"{kind} rm", lambda connection: connection.api(call))
        mode.echo(f"removed {kind} {path}{held}")
    if mode.as_json:
        shared.print_json({"name": path, "removed": is_agreed})


def _make_group(kind: str, metavar: str) -> click.Group:
    """Return the group of commands for streams, or for consumers."""
    own = "logbroker's own" if kind == "stream" else "of receivers"
    group = SectionedGroup(kind, help=f"Show {kind}s, and remove those that are not {own}.")
    path_argument = click.argument(
        "path", metavar=metavar, nargs=len(metavar.split()), type=_NAME, callback=_join_path
    )

    @group.command(help=f"List {kind}s; those of the streams named, by default of all.")
    @click.argument("streams", metavar="[STREAM]...", nargs=-1, type=_NAME)
    @shared.JSON
    @shared.with_settings()
    def ls(settings: BrokerSettings, streams: tuple[str, ...], as_json: bool) -> None:
        found = _list(settings, kind, streams)
        shared.show(found, *map(_format_line, found), as_json=as_json)

    @group.command(help=f"Show the configuration and the state of a {kind}.")
    @path_argument
    @click.option("--json", is_flag=True, expose_value=False, help="The output is always JSON.")
    @shared.with_settings()
    def info(settings: BrokerSettings, path: str) -> None:
        shared.print_json(_read_info(settings, kind, path))

    @group.command(name="rm", help=f"Remove a {kind} for good, unless it is {own}.")
    @path_argument
    @shared.with_mode
    @shared.with_settings()
    def remove(settings: BrokerSettings, mode: shared.Mode, path: str) -> None:
        _remove(settings, mode, kind, path)

    return group


stream = _make_group("stream", "STREAM")
consumer = _make_group("consumer", "STREAM CONSUMER")
