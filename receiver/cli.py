"""The command line of logreceiver: options in, exit codes out.

Clients of the broker and Spark are imported late: a receiver's JVM starts meanwhile.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

import click
from click.core import ParameterSource

from nats_logship.app.command_line import (
    SectionedGroup,
    read_again,
    repeat_option,
    settings_from_options,
    settings_options,
)
from nats_logship.app.configuration import name_of
from nats_logship.app.exits import ConfigurationError, Exit
from nats_logship.app.program import log_to_stderr, run, version_of
from nats_logship.app.service import Notifier
from nats_logship.app.signals import block_signals
from receiver.cheat import cheat
from receiver.settings import (
    BROKER_FIELDS,
    REPLAY_FIELDS,
    VERIFY_FIELDS,
    ReceiverSettings,
    ReplaySettings,
    StreamSettings,
)
from receiver.spark.java import find_java
from receiver.spark.jvm import Jvm
from receiver.spark.settings import jvm_for


class _Commands(SectionedGroup):
    late: ClassVar[Mapping[str, str]] = {
        "offsets": "receiver.offsets_cli:offsets",
        "search": "receiver.search.cli:search",
        "table": "receiver.table.cli:table",
    }


@click.group("logreceiver", cls=_Commands, invoke_without_command=True)
@settings_options(ReceiverSettings)
@click.pass_context
def logreceiver(context: click.Context, /, **options: Any) -> None:
    """Receive the lines of partitions into ordered, per-host, rotated files, on Spark."""
    if (command := context.invoked_subcommand) is not None:
        for name in options:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag = f"--{name_of(name).replace('_', '-')}"
                raise click.UsageError(
                    f"{flag} belongs behind the command: `logreceiver {command} {flag} …`"
                )
        return
    block_signals()
    settings = settings_from_options(ReceiverSettings, options)
    settings.require_credential("receiver", "admin")
    if not settings.partition:
        raise click.UsageError("--partition is required: a number from 0, several, or all")
    settings.require_share()
    log_to_stderr(settings)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the driver handles it
    os.umask(0o027)  # files are for their owner and group
    notifier = Notifier(os.environ)

    read = partial(settings_from_options, ReceiverSettings, options)
    with jvm_for(settings, context.obj) as jvm:
        from receiver.pipeline import receive  # imports pyspark, while the JVM starts

        receive(settings, notifier, partial(read_again, read), jvm)


@logreceiver.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--hosts", is_flag=True, help="Also print a line for each host's file.")
@settings_options(ReceiverSettings, BROKER_FIELDS | {"output", "state_dir"})
def status(as_json: bool, hosts: bool, **options: Any) -> None:
    """Show each partition's owner, how far behind it is, why it is blocked; tables, and files."""
    settings = settings_from_options(ReceiverSettings, options)
    log_to_stderr(settings)
    from nats_logship.client.connection import ELECTION, ask_broker
    from receiver.status.status import collect_status

    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    known = ask_broker(settings, "logreceiver status", lambda c: collect_status(c, now), ELECTION)
    found = known.with_stores(settings.state)
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json"), indent=2))  # a path may be no UTF-8
    else:
        found.show(with_hosts=hosts)


@logreceiver.command()
def prepare() -> None:
    """Write Spark's classes to a file, so that later starts of this Java take half as long."""
    from receiver.spark.session import prepare as write_class_data

    java = find_java(os.environ)
    path = write_class_data(java)
    click.echo(f"wrote {path} for Java {java.version} ({java.origin})")


@logreceiver.command()
@settings_options(ReplaySettings, REPLAY_FIELDS)
def replay(**options: Any) -> None:
    """Write lines of the stream again: into files, or to standard output (--output -)."""
    settings = settings_from_options(ReplaySettings, options)
    log_to_stderr(settings)
    from receiver.replay.replay import replay as write_again

    summary = write_again(settings)
    if str(settings.output) != "-":
        click.echo(summary.as_text(), err=True)


@logreceiver.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options(StreamSettings, VERIFY_FIELDS)
def verify(as_json: bool, **options: Any) -> int:
    """Compare received files with the lines that the stream still has.

    Exit code 1 if they differ, or nothing could be compared.
    """
    settings = settings_from_options(StreamSettings, options)
    log_to_stderr(settings)
    from receiver.verify.verify import verify as compare

    report = compare(settings)
    click.echo(report.as_json() if as_json else report.as_text())
    return Exit.DONE if report.is_well else Exit.FAILED


logreceiver.add_command(cheat)


def main(jvm: Jvm | None = None) -> None:
    """Run the command line; a receiver whose Spark is on this machine uses `jvm`."""
    # nats-py imports aiohttp, for web sockets, if it is installed: 0.2 s of a start
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    several = ("--partition", "--server", "--host", "--file")
    commands = (*logreceiver.commands, *_Commands.late)
    run(logreceiver, repeat_option(sys.argv[1:], several, commands), _versions, jvm)


def _versions() -> list[str]:
    try:
        java = find_java(os.environ)
        known = f"Java {java.version} ({java.origin})"
    except ConfigurationError as error:
        known = str(error)
    return [f"Spark {version_of('pyspark')}", known]
