"""The command line of logbroker: options in, exit code out. Decides nothing."""

import sys

import click

from broker.commands.backing_up import backup, restore
from broker.commands.checking import check
from broker.commands.credentials import credentials
from broker.commands.declaring import apply
from broker.commands.exchanging import export, import_
from broker.commands.following import events, tail_lines
from broker.commands.looking import get, hosts, status
from broker.commands.promoting import promote
from broker.commands.removing import purge, rm
from broker.commands.running import run
from broker.commands.tls import tls
from broker.commands.watching import top
from broker.connecting.servers import looks_like_server
from broker.running import program
from broker.running.options import spread

__all__ = ["main"]


@click.group(name="logbroker")
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


for command in (
    run,
    credentials,
    apply,
    export,
    import_,
    status,
    top,
    hosts,
    get,
    tail_lines,
    events,
    check,
    tls,
    backup,
    restore,
    purge,
    rm,
    promote,
):
    group.add_command(command)


def main() -> None:
    """Run logbroker."""
    arguments = spread(sys.argv[1:], {"--server"}, group.commands, looks_like_server)
    program.run(group, arguments)
