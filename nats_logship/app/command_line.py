"""Parts of command lines: options made from settings, groups of commands, and a confirmation."""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from nats_logship.app.configuration import ProgramSettings, extra_of, load, name_of, prefix_of
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import format_duration, format_range, parse_range

Command = TypeVar("Command", bound=Callable[..., Any])
Model = TypeVar("Model", bound=ProgramSettings)

_METAVARS = {timedelta: "DURATION", ByteSize: "SIZE"}
_MAX_SUMMARY = 200  # characters of a command's sentence in the help of its group


class SectionedCommand(click.Command):
    """A command whose help shows each option in the section of its settings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):
                sections.setdefault(getattr(one, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
        for prefix in {one.prefix for one in self.params if isinstance(one, _SettingOption)}:
            formatter.write_paragraph()
            formatter.write_text(f"Settings are also variables of the environment: {prefix}…")


class SectionedGroup(click.Group, SectionedCommand):
    """A group whose help shows options and commands in sections."""

    command_class = SectionedCommand
    sections: ClassVar[Mapping[str, Iterable[str]]] = {}
    """The names of commands by the title of their section; empty for one section."""
    late: ClassVar[Mapping[str, str]] = {}
    """Commands that are imported only when they are called, as `module:attribute`.

    So a start imports one command, and does not need the libraries of the others.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, sorted."""
        return sorted([*self.commands, *self.late])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None for an unknown name.

        A command whose libraries are not installed fails with what to install.
        """
        if cmd_name not in self.late:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.late[cmd_name].partition(":")
        extra = module.partition(".")[0]
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] in {extra, "nats_logship"}:
                raise
            return _make_failing(f"{cmd_name} needs the package {error.name}", extra)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; click suggests similar names only for commands that are loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            known = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=known, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, section by section."""
        for title, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(title):
                formatter.write_dl(
                    [(name, one.get_short_help_str(_MAX_SUMMARY)) for name, one in commands if one]
                )


def _make_failing(reason: str, extra: str) -> click.Command:
    def fail() -> None:
        raise ConfigurationError(f"{reason}; pip install 'nats-logship[{extra}]'")

    ignoring = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(None, callback=fail, context_settings=ignoring, help=f"({reason})")


class _SettingOption(click.Option):
    """The option of a setting: its section in the help, and the prefix of its variable."""

    def __init__(self, names: Sequence[str], /, section: str, prefix: str, **options: Any) -> None:
        super().__init__(names, **options)
        self.section, self.prefix = section, prefix


def settings_options(
    model: type[ProgramSettings], only: Collection[str] | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds --config and an option for each field (in `only`).

    The command gets the values by field name, None or an empty tuple for options that were not
    given; `settings_from_options` makes settings of them.
    """

    def decorate(command: Command) -> Command:
        # a program's own options come before those of all programs
        fields = sorted(model.model_fields.items(), key=lambda f: f[0] not in model.__annotations__)
        for name, field in reversed(fields):
            is_file_only = get_origin(field.annotation) is dict or extra_of(field).get("file_only")
            if not is_file_only and (only is None or name in only):
                command = _make_option(model, name, field)(command)
        return click.option(
            "--config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="TOML file of settings (keys as the options).",
        )(command)

    return decorate


def _section_of(model: type[ProgramSettings], name: str) -> str:
    for one in model.__mro__:
        for title, names in vars(one).get("sections", {}).items():
            if name in names:
                return str(title)
    declaring = next(one for one in model.__mro__ if name in get_annotations(one))
    return str(getattr(declaring, "section", "Options"))


def _make_option(
    model: type[ProgramSettings], name: str, field: FieldInfo
) -> Callable[[Command], Command]:
    flag = f"--{name_of(name).replace('_', '-')}"
    more: dict[str, Any] = {}
    if field.annotation is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    else:
        more = {"multiple": get_origin(field.annotation) is tuple, "metavar": _metavar_of(field)}
    more |= {"section": _section_of(model, name), "prefix": prefix_of(model)}
    text = f"{field.description or ''}{_default_text(field)}"
    return click.option(flag, name, cls=_SettingOption, default=None, help=text, **more)


def _metavar_of(field: FieldInfo) -> str:
    found = field.annotation
    while get_origin(found) in (Annotated, Union, UnionType):
        found = next(one for one in get_args(found) if one is not NoneType)
    if get_origin(found) is Literal:
        return "|".join(get_args(found))
    declared = extra_of(field).get("metavar", "TEXT")
    return next((name for kind, name in _METAVARS.items() if found is kind), str(declared))


def _default_text(field: FieldInfo) -> str:
    default = field.default
    if field.is_required() or default in (None, (), ""):
        return ""
    if isinstance(default, ByteSize):
        shown = default.human_readable().replace(".0", "")
    elif isinstance(default, timedelta):
        shown = format_duration(default)
    else:
        shown = ",".join(default) if isinstance(default, tuple) else default
    return f"  [default: {shown}]"


def settings_from_options(model: type[Model], options: dict[str, Any]) -> Model:
    """Return the settings for the values of `settings_options`; raises as `configuration.load`."""
    config = options.get("config") or os.environ.get(f"{prefix_of(model)}CONFIG")
    named = {
        name: value
        for name, value in options.items()
        if name in model.model_fields and value is not None and value != ()
    }
    return load(model, named, Path(config) if config else None)


def read_again(read: Callable[[], Model]) -> Model:
    """Return the settings of a program that runs; raises `OperatorError` kinds for bad ones."""
    try:
        return read()
    except click.UsageError as error:
        raise ConfigurationError(error.format_message()) from None


def repeat_option(
    arguments: Sequence[str], options: Collection[str], commands: Collection[str]
) -> list[str]:
    """Return the arguments with `--file a b` as `--file a --file b`, for some options.

    A shell expands a glob to `--file a b`. A command or another option ends the list.
    """
    result: list[str] = []
    flag, taken = "", False
    for one in arguments:
        if one.startswith("-") and one != "-":
            flag, taken = one if one in options else "", False
        elif flag and taken and one not in commands:
            result.append(flag)
        elif taken:
            flag = ""
        else:
            taken = True
        result.append(one)
    return result


def parse_range_options(
    since: str, until: str, zone: tzinfo
) -> tuple[Moment | None, Moment | None]:
    """Return what `--since` and `--until` mean, as `parse_range`; raises click.UsageError."""
    now = datetime.now(UTC)  # noqa: TID251 - texts such as 2h count back from it
    try:
        return parse_range(since, until, now, zone)
    except ValueError as error:
        raise click.UsageError(f"--{error}") from None


def write_bytes(data: bytes) -> None:
    """Write to standard output.

    Raises `OperatorError`, and BrokenPipeError if nobody reads it any more.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OperatorError(f"cannot write to standard output: {error.strerror}") from None


def note_no_line(since: Moment | None, until: Moment | None = None) -> None:
    """Say on a terminal that no line was found in `[since, until)`."""
    if sys.stderr.isatty():
        click.echo(f"no line matches{format_range(since, until)}", err=True)


YES_OPTION = click.option("--yes", is_flag=True, help="Do it without asking.")
"""The option of every command that asks first."""


def confirm(question: str) -> None:
    """Return if a person at the terminal agrees.

    Raises `click.UsageError` without a terminal, `OperatorError` for the answer no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"nothing was changed: this asks first ({question}), and there is no terminal to "
            "answer on; --yes does it without asking"
        )
    try:
        click.confirm(question, err=True, abort=True)
    except click.Abort:
        raise OperatorError("nothing was changed; --yes does it without asking") from None
