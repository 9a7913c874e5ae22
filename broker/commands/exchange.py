"""`logbroker export` and `logbroker import`: configurations as the JSON that the nats CLI reads and writes."""

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
from broker.commands.apply import DRY_RUN, JSON, connected, propose
from broker.provision.comparing import Wanted
from broker.provision.exchange import MalformedFile, parse, plan_import
from broker.provision.exchange import export as export_all
from broker.retention.disk import asked_for
from broker.settings import APPLY_FIELDS, STATUS_FIELDS, BrokerSettings

__all__ = ["export", "import_"]

_STDIN = Path("-")
logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--stream", "only", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.argument("folder", type=click.Path(path_type=Path))
@settings_options(BrokerSettings, STATUS_FIELDS)
def export(only: tuple[str, ...], folder: Path, **options: Any) -> None:
    """Write the configuration of all streams, buckets and consumers to FOLDER, a file each, as `nats stream add --config` takes it."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    files = asyncio.run(connected(settings, lambda c: export_all(c, only, asked_for)))
    try:
        make_folder(folder, 0o755).close()
        others = sorted({path.name for path in folder.glob("*.json")} - files.keys())
    except OSError as error:
        raise ConfigurationError(f"cannot use the folder {folder}: {error.strerror}") from None
    for name, text in files.items():
        write_whole(folder / name, text)
    if others:
        logger.warning(
            "%s has files of an earlier export, whose streams or consumers are gone: %s",
            folder,
            ", ".join(others),
        )


@click.command(name="import")
@DRY_RUN
@JSON
@consent.YES
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@settings_options(BrokerSettings, APPLY_FIELDS)
def import_(
    paths: tuple[Path, ...], dry_run: bool, in_json: bool, yes: bool, **options: Any
) -> None:
    """Give the broker the configurations in PATHS: files and folders of `logbroker export` or of the nats CLI, - for stdin."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    wanted = [_read(path) for path in _files(paths)]

    async def work(connection: Connection) -> None:
        made = await plan_import(connection, wanted)
        await propose(connection, made, dry_run=dry_run, in_json=in_json, yes=yes)

    asyncio.run(connected(settings, work))


def _files(paths: tuple[Path, ...]) -> list[Path]:
    of_each = (sorted(path.glob("*.json")) if path.is_dir() else [path] for path in paths)
    found = [file for files in of_each for file in files]
    if not found:
        raise ConfigurationError(f"nothing to import in {', '.join(map(str, paths))}")
    return found


def _read(path: Path) -> Wanted:
    try:
        content = sys.stdin.read() if path == _STDIN else path.read_text("utf-8")
        return parse(path.name, content)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (MalformedFile, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
