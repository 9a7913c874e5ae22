"""`logbroker promote`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from broker.app import consent
from broker.app.exits import OperatorError
from broker.app.printable import printable
from broker.client.config import existing_partitions, require_layout
from broker.client.connection import Connection
from broker.commands.shared import asking, with_settings
from broker.inspect.status_table import short_duration
from broker.provision.apply import carry_out, refuse, refuse_half
from broker.provision.difference import describe
from broker.provision.plan import COPIED_BUCKETS, plan_promotion
from broker.settings import BrokerSettings
from broker.topology import mirrored_site

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
    names = (*layout.names, *COPIED_BUCKETS)
    infos = {name: await connection.api(f"STREAM.INFO.{name}") for name in names}
    configs = {name: info["config"] for name, info in infos.items()}
    refuse_half(configs)
    made = plan_promotion(configs, layout)
    refuse(made)
    for name in layout.names:
        site = mirrored_site(configs[name])
        if site is None:
            raise OperatorError(f"{name} at {connection.servers} is no copy of another site's")
        click.echo(printable(_described(name, site, infos[name])))
    click.echo(describe(made))
    if not yes:
        consent.ask("The copy ends here for good. Do it?")
    await carry_out(connection, made)
    click.echo(
        "this site takes lines now: send shippers and receivers here, and leave --mirror out of this broker's settings"
    )


def _described(name: str, site: str, info: Mapping[str, Any]) -> str:
    state, mirror = info["state"], info.get("mirror") or {}
    active = mirror.get("active", -1)  # nanoseconds since it was heard, -1 for never
    heard = f"was heard {short_duration(active / 10**9)} ago" if active >= 0 else "was never heard"
    return (
        f"{name} is a copy of site {site}'s up to sequence {state['last_seq']} of {state['last_ts']}; "
        f"the site {heard}, and had {mirror.get('lag', 0)} messages more then"
    )
