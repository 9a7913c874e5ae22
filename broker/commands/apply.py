"""`logbroker apply`, `partitions`, `export` and `import`: declare streams and buckets.

Each shows a plan first, then carries it out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, Field, ValidationError

from broker.commands.shared import JSON, Mode, print_json, run_on_broker, with_mode, with_settings
from broker.provision.apply import carry_out, list_all, read_actual, read_partitions
from broker.provision.plan import (
    Step,
    compare,
    describe,
    plan,
    plan_partitions,
    refuse_half_restored,
    serialize_plan,
)
from broker.settings import APPLY_FIELDS, BrokerSettings
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.files import make_folder, read_file, report_errors, write_atomic
from nats_logship.app.text import format_count
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.wire.streams import MAX_PARTITIONS, count_partitions

_NOT_OURS = ("_nats.", "logship.")  # metadata that a server or a restore wrote


class _Stream(BaseModel, extra="allow"):
    """The fields of a stream's configuration that we read; nats-server checks the others."""

    name: Annotated[str, Field(pattern=r"^[^\s.*>/\\]+$")]
    subjects: list[str] | None = None
    metadata: dict[str, str] | None = None


@click.command(cls=SectionedCommand)
@with_mode
@with_settings(APPLY_FIELDS)
def apply(settings: BrokerSettings, mode: Mode) -> None:
    """Set up streams and buckets on a running broker, or change the settings that are given.

    Existing streams keep what is not given. Repeating it changes nothing.
    """

    async def work(connection: Connection) -> None:
        desired = settings.changes()
        # a cluster that adds replicas to its streams may be electing leaders
        read = partial(read_actual, desired=desired)
        found = await retry_until_answered(connection, read, ELECTION)
        await _propose(connection, plan(desired, found), mode)

    run_on_broker(settings, "apply", work)


async def _propose(
    connection: Connection, made: tuple[Step, ...], mode: Mode, question: str = ""
) -> bool:
    """Show a plan and carry it out; return whether that was done.

    Ask `question` first; if it is empty, ask only before something is deleted.
    """
    if mode.as_json:
        print_json(serialize_plan(made))
    else:
        click.echo(describe(made) or "nothing to do")
    if not question and any(one.deletes for one in made):
        question = "This deletes the items marked with an exclamation mark. Do it?"
    if is_agreed := bool(made) and mode.confirm(question):
        await carry_out(connection, made)
    return is_agreed


@click.command(cls=SectionedCommand)
@click.argument("number", metavar="[N]", required=False, type=click.IntRange(1, MAX_PARTITIONS))
@with_mode
@with_settings()
def partitions(settings: BrokerSettings, mode: Mode, number: int | None) -> None:
    """Spread hosts over N partitions, while shippers and receivers run; without N show them.

    Every line still arrives exactly once and in order.
    """

    async def work(connection: Connection) -> None:
        actual = await retry_until_answered(connection, read_partitions, ELECTION)
        now = format_count(actual.number, "partition") if actual.number else "unknown partitions"
        mode.echo(f"hosts are spread over {now} now")
        if number is None:
            if mode.as_json:
                print_json({"partitions": actual.number})
            return
        made, wanted = plan_partitions(number, actual), format_count(number, "partition")
        question = f"Spread hosts over {wanted}?"
        if await _propose(connection, made, mode, question):
            mode.echo(
                f"hosts are spread over {wanted} now; shippers change within 10 seconds\n"
                f"1. set --partitions {number} in the settings of all brokers: with another number "
                "a broker does not start\n"
                "2. start receivers for new partitions\n"
                "3. keep the receivers of unused partitions until `logbroker status` shows 0 behind"
            )

    run_on_broker(settings, "partitions", work)


@click.command(cls=SectionedCommand)
@click.argument("folder", type=click.Path(path_type=Path))
@JSON
@with_settings()
def export(settings: BrokerSettings, folder: Path, as_json: bool) -> None:
    """Write the configuration of each stream and bucket to a file in FOLDER.

    `logbroker import` and `nats stream add --config` read these files.
    """
    files = run_on_broker(settings, "export", read_configurations)
    with report_errors(folder):
        make_folder(folder, 0o755).close()
    for name, text in files.items():
        write_atomic(folder / name, text)
    if as_json:
        print_json({"files": [str(folder / name) for name in files]})
    else:
        click.echo(f"wrote {format_count(len(files), 'file')} to {folder}")


async def read_configurations(connection: Connection) -> dict[str, str]:
    """Return the configuration of each stream as JSON, by file name."""
    streams = await _list_streams(connection)
    return {
        f"{name}.json": json.dumps(_clean(info["config"]), indent=2) + "\n"
        for name, info in sorted(streams.items())
    }


async def _list_streams(connection: Connection) -> dict[str, Mapping[str, Any]]:
    infos = await list_all(connection, "STREAM.LIST", "streams")
    return {info["config"]["name"]: info for info in infos}


def _clean(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the fields that a server or a restore wrote into it."""
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    metadata = kept.pop("metadata", {})
    if own := {name: one for name, one in metadata.items() if not name.startswith(_NOT_OURS)}:
        kept["metadata"] = own
    return kept


@click.command(name="import", cls=SectionedCommand)
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@with_mode
@with_settings(APPLY_FIELDS)
def import_(settings: BrokerSettings, mode: Mode, paths: tuple[Path, ...]) -> None:
    """Create or update the streams that PATHS describe.

    PATHS are files and folders of `logbroker export`, or files for `nats stream add --config`.
    """
    of_each = (sorted(path.glob("*.json")) if path.is_dir() else [path] for path in paths)
    wanted = [read_stream(file) for files in of_each for file in files]
    if not wanted:
        raise ConfigurationError(f"nothing to import in {', '.join(map(str, paths))}")

    async def work(connection: Connection) -> None:
        await _propose(connection, await plan_import(connection, wanted), mode)

    run_on_broker(settings, "import", work)


def read_stream(path: Path) -> Step:
    """Return the stream that a file describes; raises `OperatorError`."""
    try:
        with report_errors(path, "read"):
            config = _Stream.model_validate_json(read_file(path)).model_dump()
    except ValidationError:
        raise ConfigurationError(
            f"{path.name} does not describe a stream: JSON with a name is required"
        ) from None
    return Step("stream", config["name"], _clean(config))


async def plan_import(connection: Connection, wanted: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps that create or update these streams; others are not changed."""
    there = await _list_streams(connection)
    refuse_half_restored(there)
    pairs = [(one, there.get(one.name)) for one in wanted]
    return tuple(chain(*(compare(_with_partitions(one, info), info) for one, info in pairs)))


def _with_partitions(wanted: Step, info: Mapping[str, Any] | None) -> Step:
    """Return a stream with the subjects of all existing partitions, also of unused ones."""
    asked, there = wanted.config.get("subjects"), info and info["config"].get("subjects")
    if not asked or not there:
        return wanted
    kept = [one for one in there if count_partitions([one]) and one not in asked]
    return replace(wanted, config={**wanted.config, "subjects": [*asked, *kept]})
