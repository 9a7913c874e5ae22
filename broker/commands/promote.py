"""`logbroker promote`."""

from dataclasses import replace

import click

from broker.app import consent
from broker.app.exits import OperatorError
from broker.app.printable import printable
from broker.client.connection import Connection
from broker.client.partitions import existing_partitions, require_layout
from broker.commands.shared import asking, with_settings
from broker.inspect.status_table import short_duration
from broker.provision.apply import carry_out, refuse, refuse_half
from broker.provision.difference import describe
from broker.provision.promotion import Copy, copied, copy_of, promotion
from broker.settings import BrokerSettings

__all__ = ["promote"]


@click.command()
@consent.YES
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
    infos = {name: await connection.api(f"STREAM.INFO.{name}") for name in copied(layout)}
    configs = {name: info["config"] for name, info in infos.items()}
    refuse_half(configs)
    made = promotion(configs, layout)
    refuse(made)
    for name in layout.names:
        if (copy := copy_of(infos[name])) is None:
            raise OperatorError(f"{name} at {connection.servers} is no copy of another site's")
        click.echo(printable(_described(name, copy)))
    click.echo(describe(made))
    if not yes:
        consent.ask("The copy ends here for good. Do it?")
    await carry_out(connection, made)
    click.echo(
        "this site takes lines now: send shippers and receivers here, and leave --mirror out of this broker's settings"
    )


def _described(name: str, copy: Copy) -> str:
    heard = "was never heard"
    if copy.heard is not None:
        heard = f"was heard {short_duration(copy.heard.total_seconds())} ago"
    return (
        f"{name} is a copy of site {copy.site}'s up to sequence {copy.last_sequence} of {copy.last_time}; "
        f"the site {heard}, and had {copy.lag} messages more then"
    )
