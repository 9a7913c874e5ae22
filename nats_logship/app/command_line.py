"""What command lines are made of: options of settings, groups of commands, and the question before anything is destroyed.

Options are made from the fields of a settings model: declared there once, shown here.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

from nats_logship.app.configuration import (
    ProgramSettings,
    did_you_mean,
    extra_of,
    load,
    name_of,
    prefix_of,
)
from nats_logship.app.exits import OperatorError
from nats_logship.app.units import format_duration

Command = TypeVar("Command", bound=Callable[..., Any])
Model = TypeVar("Model", bound=ProgramSettings)


class SectionedCommand(click.Command):
    """A command whose help shows options in the sections of the settings that they belong to."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):
                sections.setdefault(getattr(one, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def settings_options(
    model: type[BaseModel], only: Collection[str] | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for each field of `model`, or for those named in `only`, and --config.

    The function gets them by field name, None (or an empty tuple) where not given; `given` makes settings of them.
    """

    def decorate(command: Command) -> Command:
        # what a program shares with others comes after its own
        fields = sorted(model.model_fields.items(), key=lambda f: f[0] not in model.__annotations__)
        for name, field in reversed(fields):
            # what few ever set is left to the --config file and the environment
            is_option = get_origin(field.annotation) is not dict and not extra_of(field).get(
                "file_only"
            )
            if is_option and (only is None or name in only):
                command = _option(name, field, _section_of(model, name))(command)
        return click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="TOML file of settings (keys as the options).",
        )(command)

    return decorate


def settings_from_options(model: type[Model], options: dict[str, Any]) -> Model:
    """Return the settings for the options of a command, as `settings_options` delivers them.

    Raises what `configuration.load` raises.
    """
    config = options.get("config") or os.environ.get(f"{prefix_of(model)}CONFIG")
    named = {
        name: value
        for name, value in options.items()
        if name in model.model_fields and value is not None and value != ()
    }
    return load(model, named, Path(config) if config else None)


def repeat_option(
    arguments: Sequence[str], options: Collection[str], commands: Collection[str]
) -> list[str]:
    """Return the arguments with `--file a b` written as `--file a --file b`, for the options named.

    A shell's glob expands to that form. A word that is a command, or starts with a dash, ends the run.
    """
    result: list[str] = []
    flag, taken = "", False
    for word in arguments:
        if word.startswith("-") and word != "-":
            flag, taken = word if word in options else "", False
        elif flag and taken and word not in commands:
            result.append(flag)
        elif taken:
            flag = ""
        else:
            taken = True
        result.append(word)
    return result


def _section_of(model: type[BaseModel], name: str) -> str:
    for one in model.__mro__:
        for title, names in vars(one).get("sections", {}).items():
            if name in names:
                return str(title)
    declaring = next(one for one in model.__mro__ if name in get_annotations(one))
    return str(getattr(declaring, "section", "Options"))


class _SettingOption(click.Option):
    """The option of a setting; `section` is the title under which the help shows it."""

    def __init__(self, words: Sequence[str], /, section: str, **options: Any) -> None:
        super().__init__(words, **options)
        self.section = section


def _option(name: str, field: FieldInfo, section: str) -> Callable[[Command], Command]:
    shown = name_of(name).replace("_", "-")
    flag, more = f"--{shown}/--no-{shown}", dict[str, Any]()
    if field.annotation is not bool:
        flag = f"--{shown}"
        more = {"multiple": get_origin(field.annotation) is tuple, "metavar": metavar_of(field)}
    text = f"{field.description or ''}{_default_text(field)}"
    return click.option(
        flag, name, cls=_SettingOption, section=section, default=None, help=text, **more
    )


_METAVARS = {timedelta: "DURATION", ByteSize: "SIZE"}


def metavar_of(field: FieldInfo) -> str:
    """Return what an option takes: by the type of its setting where that says it, else as declared."""
    found = field.annotation
    while get_origin(found) in (Annotated, Union, UnionType):  # X | None, with what is checked
        found = next(one for one in get_args(found) if one is not NoneType)
    if get_origin(found) is Literal:
        return "|".join(get_args(found))
    declared = extra_of(field).get("metavar", "TEXT")
    return next((name for kind, name in _METAVARS.items() if found is kind), str(declared))


def _default_text(field: FieldInfo) -> str:
    if field.is_required() or field.default in (None, (), ""):
        return ""
    default = field.default
    shown = ",".join(default) if isinstance(default, tuple) else default
    if isinstance(shown, ByteSize):
        shown = shown.human_readable().replace(".0", "")
    elif isinstance(shown, timedelta):
        shown = format_duration(shown)
    return f"  [default: {shown}]"


_SENTENCE = 200  # characters, and no dots in place of the end of what a command does


class SectionedGroup(click.Group, SectionedCommand):
    """A group whose help, and that of its commands, shows options in sections, and then what each command does by a whole sentence."""

    command_class = SectionedCommand
    sections: ClassVar[Mapping[str, Iterable[str]]] = {}
    """The names of the commands by the title of their section, where there is more than one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; raises click.UsageError, which names similar ones."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            meant = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f"No such command {args[0]!r}{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, section by section."""
        for title, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(title):
                formatter.write_dl(
                    [(name, one.get_short_help_str(_SENTENCE)) for name, one in commands if one]
                )


YES_OPTION = click.option("--yes", is_flag=True, help="Do it without asking.")
"""The option of every command that asks first."""


def confirm(question: str) -> None:
    """Return when a person at the terminal agrees; what it is about must have been shown before.

    Raises `click.UsageError` where there is no terminal, `OperatorError` when the answer is no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"nothing was changed: this asks first ({question}), and there is no terminal to answer on; "
            "--yes does it without asking"
        )
    try:
        click.confirm(question, err=True, abort=True)
    except click.Abort:
        raise OperatorError("nothing was changed; --yes does it without asking") from None
