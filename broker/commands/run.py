"""`logbroker run`."""

import asyncio
import os
import signal
from typing import Any

import click

from broker.app.command_line import SectionedCommand, given, settings_options
from broker.app.exits import ConfigurationError
from broker.app.service import notifier_from
from broker.commands.shared import store_of
from broker.retention.worker import retain
from broker.server.context import ServerContext, log_as_set, serve
from broker.settings import RUN_FIELDS, BrokerSettings

__all__ = ["run"]


@click.command(cls=SectionedCommand)
@settings_options(BrokerSettings, RUN_FIELDS)
def run(**options: Any) -> None:
    """Run nats-server on a folder until SIGTERM; says when it is ready."""
    # a hang-up before there is anything to read again waits until there is
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    settings = given(BrokerSettings, options)
    if settings.store_dir is None and (folders := os.environ.get("STATE_DIRECTORY")):
        options["store_dir"] = folders.split(":")[0]  # systemd's, where nothing else is said
        settings = given(BrokerSettings, options)
    folder = store_of(settings)
    log_as_set(settings)

    def reread() -> BrokerSettings:
        try:
            return given(BrokerSettings, options)
        except click.UsageError as error:
            raise ConfigurationError(error.format_message()) from None

    background = (retain, _serve_metrics)
    asyncio.run(serve(settings, folder, notifier_from(os.environ), reread, background=background))


async def _serve_metrics(context: ServerContext) -> None:
    if (address := context.settings.metrics) is not None:
        from broker.inspect.metrics import serve_metrics  # a library that nobody else needs

        await serve_metrics(context.connection, address)
