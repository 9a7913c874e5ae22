"""Commands that are loaded when they are called: a start pays for one of them, and lacks nothing that the others need."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import click

from broker.app.exits import ConfigurationError

__all__ = ["LazyGroup", "PlainGroup"]

_SENTENCE = 200  # characters, and no dots in place of the end of what a command does


class PlainGroup(click.Group):
    """A group whose help shows what each of its commands does by a whole sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        _write(self, ctx, formatter, "Commands", self.list_commands(ctx))


def _write(
    group: click.Group,
    context: click.Context,
    formatter: click.HelpFormatter,
    title: str,
    names: Iterable[str],
) -> None:
    commands = ((name, group.get_command(context, name)) for name in names)
    with formatter.section(title):
        formatter.write_dl(
            [(name, one.get_short_help_str(_SENTENCE)) for name, one in commands if one]
        )


class LazyGroup(PlainGroup):
    """A group of commands in sections, each command by its name and where it is: `module:attribute`.

    One whose libraries are not installed says so when it is called, with the extra that brings them.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what a group takes, and `sections` (of the help: title to places) and `extra`."""
        self.sections: Mapping[str, Mapping[str, str]] = options.pop("sections")
        self.places = {
            name: place for places in self.sections.values() for name, place in places.items()
        }
        self._extra: str = options.pop("extra")
        super().__init__(*arguments, **options)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, section by section."""
        for title, places in self.sections.items():
            _write(self, ctx, formatter, title, places)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in their order."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None for a name that is not one."""
        if cmd_name not in self.places:
            return None
        module, _, attribute = self.places[cmd_name].partition(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == module.partition(".")[0]:
                raise
            return _missing(cmd_name, error.name, self._extra)
        return command


def _missing(name: str, library: str, extra: str) -> click.Command:
    words = f"needs the package {library}; pip install '{extra}'"

    def fail(**_: object) -> None:
        raise ConfigurationError(f"{name} {words}")

    return click.Command(
        name,
        callback=fail,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help=f"({words})",
    )
