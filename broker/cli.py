"""The command line of logbroker: options in, exit code out. Decides nothing."""

import sys

import click

from broker.app import program
from broker.app.lazily import Lazily
from broker.app.options import spread
from broker.client.servers import looks_like_server

__all__ = ["main"]

_PLACES = {
    "run": "run:run",
    "credentials": "credentials:credentials",
    "apply": "apply:apply",
    "partitions": "partitions:partitions",
    "export": "exchange:export",
    "import": "exchange:import_",
    "status": "looking:status",
    "top": "watching:top",
    "hosts": "looking:hosts",
    "get": "looking:get",
    "tail": "following:tail_lines",
    "events": "following:events",
    "check": "checking:check",
    "tls": "tls:tls",
    "backup": "backing_up:backup",
    "restore": "backing_up:restore",
    "purge": "removing:purge",
    "rm": "removing:rm",
    "promote": "promoting:promote",
}


@click.group(
    name="logbroker",
    cls=Lazily,
    places={name: f"broker.commands.{place}" for name, place in _PLACES.items()},
    extra="logship[broker]",
)
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


def main() -> None:
    """Run logbroker."""
    arguments = spread(sys.argv[1:], {"--server"}, _PLACES, looks_like_server)
    program.run(group, arguments)
