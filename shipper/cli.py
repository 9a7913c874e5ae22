"""The command line of the shipper: reads settings, starts the agent or a report, and turns the end into an exit code.

Imports what talks to the broker only when it is needed: `logshipper --help` is quick.
"""

import fcntl
import gc
import json
import logging
import os
import socket
import sys
import time
from typing import Any

import click

from nats_logship.app.command_line import (
    SectionedGroup,
    repeat_option,
    settings_from_options,
    settings_options,
)
from nats_logship.app.exits import ConfigurationError, Exit
from nats_logship.app.program import log_to_stderr, run
from nats_logship.app.service import Notifier, block_signals
from nats_logship.app.text import printable
from nats_logship.client.access_settings import ACCESS
from nats_logship.wire.subjects import SHARED_NAME, InvalidHost, is_shared_name, validate_host
from shipper.settings import ShipperSettings

logger = logging.getLogger(__name__)


@click.group(
    "logshipper",
    cls=SectionedGroup,
    invoke_without_command=True,
    context_settings={"max_content_width": 100},
)
@settings_options(ShipperSettings)
@click.pass_context
def logshipper(context: click.Context, /, **options: Any) -> None:
    """Ship the lines of log files, each exactly once and in order, to a NATS JetStream broker.

    Follows files through rotation and truncation. Without a command it runs until a signal ends it.
    """
    context.obj = options
    if context.invoked_subcommand is not None:
        return
    block_signals()
    settings = _settings(options)
    host = _host(settings)
    log_to_stderr(settings)
    if is_shared_name(host):
        logger.warning("%s", SHARED_NAME.format(host))
    # nats-py imports aiohttp where it is installed, for web sockets: a fifth of the CPU of a start, and 10 MiB
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    gc.disable()
    import asyncio

    from nats_logship.app.memory import keep_large_buffers
    from shipper.agent import Agent

    gc.freeze()  # what is imported stays; to look for garbage in it costs a tenth of a start, and pauses later
    gc.enable()
    keep_large_buffers()
    agent = Agent(settings, host, time.time_ns)
    asyncio.run(agent.run(Notifier(os.environ), lambda: _reread(options)))


@logshipper.command("status")
@settings_options(ShipperSettings, only={"host", *ACCESS})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def _status(context: click.Context, /, as_json: bool, **options: Any) -> int:
    """Show how far each file is shipped; works whether or not an agent runs."""
    import asyncio

    from nats_logship.app.table import show
    from shipper.status.live import ask
    from shipper.status.show import shown, stored

    settings = settings_from_options(ShipperSettings, _merged(context, options))
    hosts, silent = asyncio.run(ask(settings.host))
    for process in silent:
        text = f"the agent with pid {process.pid} does not answer; ask as its user or as root"
        click.echo(text, err=True)
    hosts = hosts or [asyncio.run(stored(settings, _host(settings)))]
    if as_json:
        click.echo(json.dumps([host.model_dump() for host in hosts], indent=2))
    else:
        show(*(part for host in hosts for part in shown(host)))
    return Exit.FAILED if silent else Exit.DONE


@logshipper.command("check")
@settings_options(ShipperSettings, only={"file", "exclude", "ignore_older", "host", *ACCESS})
@click.pass_context
def _check(context: click.Context, /, **options: Any) -> int:
    """Check the configuration, the broker and the files, and say what would be followed; changes nothing."""
    import asyncio

    from shipper.status.show import BAD, check

    settings = _settings(_merged(context, options))
    findings = asyncio.run(check(settings, _host(settings)))
    for level, text in findings:
        click.echo(f"{level} {printable(text)}")
    return Exit.FAILED if BAD in dict(findings) else Exit.DONE


def _merged(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    # `logshipper --host a status` and `logshipper status --host a` are the same
    own = {name: value for name, value in options.items() if value not in (None, ())}
    return {**context.obj, **own}


def _settings(options: dict[str, Any]) -> ShipperSettings:
    """Return the settings of an agent, which has files to follow, or standard input."""
    settings = settings_from_options(ShipperSettings, options)
    settings.require_credential("host", "admin")
    if not any(settings.file):
        raise click.UsageError(
            "--file is required (or LOGSHIPPER_FILE, or file in the --config file)"
        )
    if settings.is_input:
        if sys.stdin is None or fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise click.UsageError("--file -: standard input is closed, or open for writing only")
        if settings.exclude or settings.ignore_older is not None or settings.from_ == "end":
            raise click.UsageError(
                "--from, --exclude and --ignore-older are for files; standard input is read as it comes"
            )
    return settings


def _reread(options: dict[str, Any]) -> ShipperSettings:
    try:
        return _settings(options)
    except click.UsageError as error:
        raise ConfigurationError(error.format_message()) from None


def _host(settings: ShipperSettings) -> str:
    try:
        return settings.host or validate_host(socket.gethostname())
    except InvalidHost as error:
        raise ConfigurationError(
            f"the name of this machine will not do: {error}; give --host"
        ) from None


def main() -> None:
    """Run the program named `logshipper`."""
    arguments = repeat_option(
        sys.argv[1:], {"--file", "--exclude", "--server"}, {"status", "check"}
    )
    run(logshipper, arguments)
