"""The command line of the shipper: reads settings, runs the agent or a report, sets the exit code.

Modules that talk to the broker are imported late, so that `logshipper --help` is quick.
"""

import asyncio
import ctypes
import fcntl
import gc
import json
import logging
import os
import socket
import sys
from contextlib import suppress
from typing import Any

import click

from nats_logship.app.command_line import (
    SectionedCommand,
    SectionedGroup,
    read_again,
    repeat_option,
    settings_from_options,
    settings_options,
)
from nats_logship.app.exits import ConfigurationError, Exit
from nats_logship.app.program import log_to_stderr, run
from nats_logship.app.service import Notifier
from nats_logship.app.signals import block_signals
from nats_logship.app.text import printable
from nats_logship.client.access_settings import ACCESS
from nats_logship.wire.subjects import InvalidHost, validate_host
from shipper.cheat import cheat
from shipper.clock import Clock
from shipper.host_name import find_shared_name
from shipper.settings import ShipperSettings
from shipper.sources.inputs import STANDARD_INPUT

logger = logging.getLogger(__name__)
_OF_JOURNAL = ("unit", "exclude_unit", "priority", "journal_directory", "journal_format")
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # mallopt(3)
_MAX_THRESHOLD = 32 * 1024 * 1024  # bytes; the maximum of glibc


@click.group(
    "logshipper",
    cls=SectionedGroup,
    invoke_without_command=True,
    context_settings={"max_content_width": 100},
)
@settings_options(ShipperSettings)
@click.pass_context
def logshipper(context: click.Context, /, **options: Any) -> None:
    """Ship the lines of log files to a NATS JetStream broker, each exactly once and in order.

    Files are followed through rotation and truncation. Without a command, logshipper runs until it
    receives SIGTERM or SIGINT.
    """
    context.obj = options
    if context.invoked_subcommand is not None:
        return
    block_signals()
    settings = _settings(options)
    host = _host(settings)
    log_to_stderr(settings)
    if warning := find_shared_name(host):
        logger.warning("%s", warning)
    # nats-py imports aiohttp, if installed, for web sockets: a fifth of a start's CPU, and 10 MiB
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    gc.disable()
    from shipper.agent import Agent

    gc.freeze()  # modules are never garbage: collecting them costs a tenth of a start, and pauses
    gc.enable()
    _keep_large_buffers()
    agent = Agent(settings, host, Clock())
    asyncio.run(agent.run(Notifier(os.environ), lambda: read_again(lambda: _settings(options))))


@logshipper.command("status")
@settings_options(ShipperSettings, only={"host", *ACCESS})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def _status(context: click.Context, /, as_json: bool, **options: Any) -> int:
    """Show how far each file is shipped, also if no agent runs."""
    from nats_logship.app.table import show
    from shipper.status.live import ask
    from shipper.status.show import read_saved_report, render

    settings = settings_from_options(ShipperSettings, _merged(context, options))
    hosts, silent = asyncio.run(ask(settings.host))
    for process in silent:
        text = f"the agent with pid {process.pid} does not answer; ask as its user or as root"
        click.echo(text, err=True)
    hosts = hosts or [asyncio.run(read_saved_report(settings, _host(settings)))]
    if as_json:
        click.echo(json.dumps([host.model_dump() for host in hosts], indent=2))
    else:
        show(*(part for host in hosts for part in render(host)))
    return Exit.FAILED if silent else Exit.DONE


@logshipper.command("check", cls=SectionedCommand)
@settings_options(ShipperSettings)
@click.pass_context
def _check(context: click.Context, /, **options: Any) -> int:
    """Check configuration, broker and files, and list the files to follow; change nothing."""
    from shipper.status.show import Level, check

    settings = _settings(_merged(context, options))
    results = asyncio.run(check(settings, _host(settings)))
    for result in results:
        click.echo(f"{result.level.value} {printable(result.text)}")
    return Exit.FAILED if any(one.level is Level.BAD for one in results) else Exit.DONE


logshipper.add_command(cheat)


def _merged(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of program and command, which may be given to either."""
    own = {name: value for name, value in options.items() if value not in (None, ())}
    return {**context.obj, **own}


def _settings(options: dict[str, Any]) -> ShipperSettings:
    """Return the settings of an agent; raises `UsageError` if there is nothing to read."""
    settings = settings_from_options(ShipperSettings, options)
    settings.require_credential("host", "admin")
    _check_journal(settings)
    if not (any(settings.file) or settings.journal):
        raise click.UsageError(
            "--file is missing, or --journal; give it, or LOGSHIPPER_FILE, or file in the "
            "--config file"
        )
    if STANDARD_INPUT in settings.file and (
        sys.stdin is None or fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    ):
        raise click.UsageError("--file -: standard input is closed, or open for writing only")
    is_for_files = settings.exclude or settings.ignore_older is not None or settings.from_ == "end"
    if set(settings.file) == {STANDARD_INPUT} and is_for_files:
        raise click.UsageError(
            "--from, --exclude and --ignore-older do not apply to standard input (--file -)"
        )
    return settings


def _check_journal(settings: ShipperSettings) -> None:
    for name in () if settings.journal else _OF_JOURNAL:
        if getattr(settings, name) != ShipperSettings.model_fields[name].default:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --journal")


def _host(settings: ShipperSettings) -> str:
    try:
        return settings.host or validate_host(socket.gethostname())
    except InvalidHost as error:
        raise ConfigurationError(
            f"the name of this machine cannot be used: {error}; give --host"
        ) from None


def _keep_large_buffers() -> None:
    """Keep the buffers of rounds, which have some megabytes, in the heap of glibc, if it is there.

    Otherwise glibc maps and unmaps the memory for each round, and the kernel fills it with zeros:
    shipping 400 MB takes 1.04 s of CPU instead of 0.96 s. The agent has some 10 MiB more.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)  # one heap: each of many would keep the buffers of a round
        mallopt(_MMAP_THRESHOLD, _MAX_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2 * _MAX_THRESHOLD)


def main() -> None:
    """Run `logshipper`."""
    arguments = repeat_option(
        sys.argv[1:],
        {"--file", "--exclude", "--server", "--unit", "--exclude-unit"},
        {"cheat", "check", "status"},
    )
    run(logshipper, arguments)
