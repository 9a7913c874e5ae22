"""`logbroker promote`."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import click

from broker.app import consent, program
from broker.app.durations import format_duration
from broker.app.exits import OperatorError
from broker.app.options import given, settings_options
from broker.app.printable import printable
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.partitions import existing_partitions, read_layout
from broker.provision.apply import carry_out, refuse, refuse_half
from broker.provision.difference import describe
from broker.provision.promotion import Copy, copied, copy_of, promotion
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.wire.streams import CONFIG_BUCKET, StreamLayout

__all__ = ["promote"]


@click.command()
@consent.YES
@settings_options(BrokerSettings, STATUS_FIELDS)
def promote(yes: bool, **options: Any) -> None:
    """Make this site's copy of another one's stream a stream that takes lines, when that site is lost.

    Then send shippers and receivers here, and leave --mirror out of this broker's settings. The other site
    must not come back as it was: lines would be taken at both.
    """
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    asyncio.run(_promote(settings, yes=yes))


async def _promote(settings: BrokerSettings, *, yes: bool) -> None:
    connection = Connection(settings.server, "logbroker promote", access=settings.access)
    try:
        await connection.once()
        layout = await _layout(connection)
        infos = {name: await connection.api(f"STREAM.INFO.{name}") for name in copied(layout)}
        copies = {name: copy_of(infos[name]) for name in layout.names}
        configs = {name: info["config"] for name, info in infos.items()}
        refuse_half(configs)
        made = promotion(configs, layout)
        refuse(made)
        for name, copy in copies.items():
            if copy is None:
                raise OperatorError(f"{name} at {connection.servers} is no copy of another site's")
            click.echo(printable(_words(name, copy)))
        click.echo(describe(made))
        if not yes:
            consent.ask("The copy ends here for good. Do it?")
        await carry_out(connection, made)
        click.echo(
            "this site takes lines now: send shippers and receivers here, and leave --mirror out of this broker's settings"
        )
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer as it should: {error}"
        ) from None
    finally:
        await connection.close()


async def _layout(connection: Connection) -> StreamLayout:
    """Return how many partitions exist: shippers say on the subjects that their hosts have left that they did."""
    layout = await read_layout(connection)
    if layout is None:
        raise OperatorError(
            f"the copy of {CONFIG_BUCKET} does not say how many partitions there are, so that its streams could take no "
            "lines; nothing was changed"
        )
    return replace(layout, partitions=await existing_partitions(connection))


def _words(name: str, copy: Copy) -> str:
    heard = "was never heard"
    if copy.heard is not None:
        heard = (
            f"was heard {format_duration(timedelta(seconds=round(copy.heard.total_seconds())))} ago"
        )
    return (
        f"{name} is a copy of site {copy.site}'s up to sequence {copy.last_sequence} of {copy.last_time}; "
        f"the site {heard}, and had {copy.lag} messages more then"
    )
