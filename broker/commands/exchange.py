"""`logbroker export` and `logbroker import`: configurations as JSON that other tools read and write."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

from broker.app import consent, program
from broker.app.exits import ConfigurationError
from broker.app.folder import make_folder
from broker.app.options import given, settings_options
from broker.app.whole import write_whole
from broker.client.connection import Connection
from broker.commands.apply import EXIT_CODE, connected, ended_as, propose
from broker.provision.difference import shown
from broker.provision.document import Document, MalformedDocument, files, read, text
from broker.provision.exchange import gather, overruled, plan_document
from broker.provision.steps import Plan
from broker.provision.terraform import terraform
from broker.retention.disk import asked_for
from broker.settings import APPLY_FIELDS, STATUS_FIELDS, BrokerSettings

__all__ = ["export", "import_"]

_STDIN = Path("-")
logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--stream", "only", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["nats", "terraform"]),
    default="nats",
    help="nats: JSON of the JetStream API, as `nats stream add --config` takes it; terraform: a main.tf.json.",
    show_default=True,
)
@click.argument("folder", type=click.Path(path_type=Path), default=_STDIN)
@settings_options(BrokerSettings, STATUS_FIELDS)
def export(only: tuple[str, ...], form: str, folder: Path, **options: Any) -> None:
    """Write the configuration of all streams, buckets and consumers to FOLDER, a file each, or to stdout as one text."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)

    async def work(connection: Connection) -> None:
        document = await gather(connection, only, asked_for)
        if form == "terraform":
            named = {"main.tf.json": terraform(document, ",".join(settings.server))}
        else:
            named = {"": text(document)} if folder == _STDIN else files(document)
        _write(named, folder)

    asyncio.run(connected(settings, work))


def _write(named: dict[str, str], folder: Path) -> None:
    if folder == _STDIN:
        click.echo("".join(named.values()), nl=False)
        return
    try:
        make_folder(folder, 0o755).close()
        others = sorted({path.name for path in folder.glob("*.json")} - named.keys())
    except OSError as error:
        raise ConfigurationError(f"cannot use the folder {folder}: {error.strerror}") from None
    for name, content in named.items():
        write_whole(folder / name, content)
    if others:
        logger.warning(
            "%s was there before and is not on this broker: %s", folder, ", ".join(others)
        )


@click.command(name="import")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@EXIT_CODE
@consent.YES
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@settings_options(BrokerSettings, APPLY_FIELDS)
def import_(
    paths: tuple[Path, ...], dry_run: bool, exit_code: bool, yes: bool, **options: Any
) -> int:
    """Give the broker the configurations in PATHS: files and folders of `logbroker export` or of the nats CLI, - for stdin."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    document = sum((_read(path) for path in _files(paths)), Document(()))
    if document.unknown:
        logger.warning("left out what no server here knows: %s", ", ".join(document.unknown))

    async def work(connection: Connection) -> Plan:
        made = await plan_document(connection, document)
        await propose(connection, made, dry_run=dry_run, yes=yes)
        return made

    ended = ended_as(connected(settings, work), dry_run=dry_run, exit_code=exit_code)
    if changes := overruled(settings.topology(), document):
        says = ", ".join(f"{one.field} = {shown(one.field, one.after)}" for one in changes)
        logger.warning("logbroker's own settings set this back when it starts or applies: %s", says)
    return ended


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.is_file())
            found += [one for one in inside if one.suffix in {".json", ".partitions"}]
        else:
            found.append(path)
    if not found:
        raise ConfigurationError(f"nothing to import in {', '.join(map(str, paths))}")
    return found


def _read(path: Path) -> Document:
    try:
        content = sys.stdin.read() if path == _STDIN else path.read_text("utf-8")
        return read(path.name, content)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (MalformedDocument, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
