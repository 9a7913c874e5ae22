"""`logbroker run`: run nats-server, and what works beside it."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from broker.commands.shared import find_store
from broker.retention.worker import run_retention
from broker.server.context import ServerContext
from broker.server.health import watch_health
from broker.server.intervals import keep_interval
from broker.server.store import check_membership, lock_store, remove_state
from broker.settings import RUN_FIELDS, BrokerSettings
from nats_logship.app.command_line import (
    SectionedCommand,
    read_again,
    settings_from_options,
    settings_options,
)
from nats_logship.app.files import report_errors
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier, Service
from nats_logship.app.signals import block_signals

logger = logging.getLogger(__name__)


@click.command(cls=SectionedCommand)
@settings_options(BrokerSettings, RUN_FIELDS)
def run(**options: Any) -> None:
    """Run nats-server on a folder until SIGTERM; the log says when it is ready.

    Options of nats-server itself are in the table [nats] of the --config file, with nats-server's
    names.
    """
    block_signals()
    settings = settings_from_options(BrokerSettings, options)
    folder = find_store(settings)
    _log_as_set(settings)

    read = partial(settings_from_options, BrokerSettings, options)
    asyncio.run(_serve(settings, folder, partial(read_again, read)))


async def _serve(
    settings: BrokerSettings, folder: Path, reread: Callable[[], BrokerSettings]
) -> None:
    """Run the broker on `folder`, absolute, until SIGTERM or SIGINT.

    Raises `OperatorError` if it cannot start, or ends by itself.
    """
    with report_errors(folder, "use the store"), lock_store(folder) as lock:
        remove_state(folder)
        background = watch_health, run_retention, keep_interval, _serve_metrics
        context = ServerContext(settings, folder, background)
        check_membership(folder, settings.cluster, settings.name)

        async def change(changed: BrokerSettings) -> None:
            await context.change_settings(changed)
            _log_as_set(context.settings)

        service = Service(context, change, _end)
        await service.run(Notifier(os.environ), reread, context.run(lock))


def _end() -> float:
    logger.info("stopping")
    return 0.0


def _log_as_set(settings: BrokerSettings) -> None:
    """Log to stderr; of nats-server's log only warnings and errors, except at level debug."""
    log_to_stderr(settings)
    level = logging.DEBUG if settings.log_level == "debug" else logging.WARNING
    logging.getLogger("nats-server").setLevel(level)


async def _serve_metrics(context: ServerContext) -> None:
    if (address := context.settings.metrics) is not None:
        from broker.inspect.metrics import serve_metrics  # loads prometheus_client, for this alone

        await serve_metrics(context.connection, address, context.settings.name)
