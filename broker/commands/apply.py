"""`logbroker apply`, `partitions`, `export`, `import` and `promote`: what is declared for a running broker, as a plan that is shown first."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import click

from broker.app import command_line
from broker.app.command_line import SectionedCommand
from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import make_folder, write_atomic
from broker.app.untrusted import printable
from broker.client.config import existing_partitions, require_layout
from broker.client.connection import Connection
from broker.commands.shared import DRY_RUN, JSON, asking, with_settings
from broker.provision.apply import (
    carry_out,
    look,
    look_at_partitions,
    refuse_half,
    with_deletions,
)
from broker.provision.exchange import export as export_all
from broker.provision.exchange import parse, plan_import
from broker.provision.plan import (
    COPIED_BUCKETS,
    Step,
    as_json,
    describe,
    plan,
    plan_partitions,
    plan_promotion,
)
from broker.settings import APPLY_FIELDS, BrokerSettings
from broker.topology import mirrored_site
from broker.wire.streams import MAX_PARTITIONS

_STDIN = Path("-")


@click.command(cls=SectionedCommand)
@DRY_RUN
@JSON
@command_line.YES
@with_settings(APPLY_FIELDS)
def apply(settings: BrokerSettings, dry_run: bool, as_json: bool, yes: bool) -> None:
    """Set up streams, buckets and consumers on a running broker; a second time changes nothing."""

    async def work(connection: Connection) -> None:
        desired = settings.topology()
        made = plan(desired, await look(connection, desired))
        await _propose(connection, made, dry_run, as_json, yes)

    asking(settings, "apply", work)


async def _propose(
    connection: Connection, made: tuple[Step, ...], dry_run: bool, in_json: bool, yes: bool
) -> None:
    """Show a plan, ask where it deletes something, and carry it out."""
    made = await with_deletions(connection, made)
    click.echo(
        json.dumps(as_json(made), indent=2) if in_json else describe(made) or "nothing to do"
    )
    if dry_run:
        return
    if any(one.deletes for one in made) and not yes:
        command_line.ask("This deletes what is marked with an exclamation mark. Do it?")
    await carry_out(connection, made)


@click.command()
@click.argument("number", metavar="N", type=click.IntRange(1, MAX_PARTITIONS))
@command_line.YES
@with_settings()
def partitions(settings: BrokerSettings, number: int, yes: bool) -> None:
    """Spread hosts over N partitions, while shippers and receivers run: no line is lost, or comes twice, or out of order."""

    async def work(connection: Connection) -> None:
        actual = await look_at_partitions(connection)
        made = plan_partitions(number, actual)
        if not made:
            click.echo(f"hosts are spread over {number} partitions already; nothing to do")
            return
        click.echo(f"hosts are spread over {actual.number or 'unknown'} partitions now")
        click.echo(describe(made))
        if not yes:
            command_line.ask(f"Spread hosts over {number} partitions?")
        await carry_out(connection, made)
        click.echo(
            f"hosts are spread over {number} partitions now: shippers go over within 10 seconds of their next lines\n"
            f"make --partitions {number} in settings of brokers; see that receivers run for new partitions, and "
            "keep those of old ones until `logbroker status` shows nothing behind there"
        )

    asking(settings, "partitions", work)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@with_settings()
def export(settings: BrokerSettings, folder: Path) -> None:
    """Write the configuration of all streams, buckets and consumers to FOLDER, a file each, as `nats stream add --config` takes it."""
    files = asking(settings, "export", export_all)
    try:
        make_folder(folder, 0o755).close()
    except OSError as error:
        raise ConfigurationError(f"cannot use the folder {folder}: {error.strerror}") from None
    for name, text in files.items():
        write_atomic(folder / name, text)


@click.command(name="import")
@DRY_RUN
@JSON
@command_line.YES
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@with_settings(APPLY_FIELDS)
def import_(
    settings: BrokerSettings, paths: tuple[Path, ...], dry_run: bool, as_json: bool, yes: bool
) -> None:
    """Give the broker the configurations in PATHS: files and folders of `logbroker export` or of the nats CLI, - for stdin."""
    of_each = (sorted(path.glob("*.json")) if path.is_dir() else [path] for path in paths)
    wanted = [_read(file) for files in of_each for file in files]
    if not wanted:
        raise ConfigurationError(f"nothing to import in {', '.join(map(str, paths))}")

    async def work(connection: Connection) -> None:
        made = await plan_import(connection, wanted)
        await _propose(connection, made, dry_run, as_json, yes)

    asking(settings, "import", work)


def _read(path: Path) -> Step:
    try:
        content = sys.stdin.read() if path == _STDIN else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    return parse(path.name, content)


@click.command()
@command_line.YES
@with_settings()
def promote(settings: BrokerSettings, yes: bool) -> None:
    """Make this site's copy of another one's stream a stream that takes lines, when that site is lost.

    Then send shippers and receivers here, and leave --mirror out of this broker's settings. The other site
    must not come back as it was: lines would be taken at both.
    """
    asking(settings, "promote", lambda connection: _promote(connection, yes=yes))


async def _promote(connection: Connection, *, yes: bool) -> None:
    # shippers say that they have left a subject on that subject: all partitions that exist are needed
    layout = replace(
        await require_layout(connection), partitions=await existing_partitions(connection)
    )
    names = (*layout.names, *COPIED_BUCKETS)
    infos = {name: await connection.api(f"STREAM.INFO.{name}") for name in names}
    configs = {name: info["config"] for name, info in infos.items()}
    refuse_half(configs)
    made = plan_promotion(configs, layout)
    for name in layout.names:
        site = mirrored_site(configs[name])
        if site is None:
            raise OperatorError(f"{name} at {connection.servers} is no copy of another site's")
        state, lag = infos[name]["state"], (infos[name].get("mirror") or {}).get("lag", 0)
        end = f"sequence {state['last_seq']} of {state['last_ts']}, {lag} messages behind"
        click.echo(printable(f"{name} is a copy of site {site}'s up to {end} when last heard"))
    click.echo(describe(made))
    if not yes:
        command_line.ask("The copy ends here for good. Do it?")
    await carry_out(connection, made)
    click.echo(
        "this site takes lines now: send shippers and receivers here, and leave --mirror out of this broker's settings"
    )
