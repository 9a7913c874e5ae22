"""`logreceiver table`: options in, exit codes out."""

import os
import re
from functools import partial
from typing import Any

import click

from nats_logship.app.command_line import (
    SectionedCommand,
    read_again,
    settings_from_options,
    settings_options,
)
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier
from nats_logship.app.signals import block_signals
from nats_logship.wire.table_progress import TABLE_PREFIX
from receiver.spark.settings import jvm_for
from receiver.table.settings import TableSettings

_ID = re.compile(rf"(?:{TABLE_PREFIX})?([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})")


@click.command(cls=SectionedCommand)
@click.option(
    "--forget",
    is_flag=True,
    help="Have the broker keep no lines for this table any more, and exit. --table may be its id, "
    "as `logbroker status` shows it. The table itself stays.",
)
@settings_options(TableSettings)
@click.pass_context
def table(context: click.Context, /, forget: bool, **options: Any) -> None:
    """Write the lines of all streams into a Delta table, which DuckDB, Polars and Spark read."""
    settings = settings_from_options(TableSettings, options)
    _require_libraries()
    log_to_stderr(settings)
    if forget:
        click.echo(_forget(settings))
        return
    block_signals()
    os.umask(0o027)  # files are for their owner and group
    notifier = Notifier(os.environ)

    read = partial(settings_from_options, TableSettings, options)
    with jvm_for(settings, context.obj) as jvm:
        from receiver.table.pipeline import write_table  # imports pyspark, while the JVM starts

        write_table(settings, notifier, partial(read_again, read), jvm)


def _require_libraries() -> None:
    try:
        import deltalake  # noqa: F401 - an extra
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is missing: install nats-logship[table]") from None


def _forget(settings: TableSettings) -> str:
    from nats_logship.client.connection import ELECTION, ask_broker
    from receiver.table.claim import forget

    table_id = _find_id(settings)
    known = ask_broker(settings, "logreceiver table", lambda c: forget(c, table_id), ELECTION)
    if not known:
        raise OperatorError(f"the broker knows no table {table_id}")
    return f"forgot table {table_id}: the broker keeps no lines for it"


def _find_id(settings: TableSettings) -> str:
    if found := _ID.fullmatch(settings.table):
        return found[1]
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    from nats_logship.table_files import explain

    lines = settings.location.child("lines")
    try:
        table = DeltaTable(lines.root, storage_options=lines.storage_options)
    except (DeltaError, OSError) as error:
        raise OperatorError(
            f"cannot read {lines.root}: {explain(error)}; or give --table the id that `logbroker "
            "status` shows"
        ) from None
    return str(table.metadata().id)
