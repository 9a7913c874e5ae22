"""The commands that a text names, and whether the programs take them."""

import re
import shlex

import click

from broker.cli import group as logbroker
from receiver.cli import logreceiver
from shipper.cli import logshipper

PROGRAMS = {"logbroker": logbroker, "logreceiver": logreceiver, "logshipper": logshipper}
_COMMAND = re.compile(
    r"(?:`|^(?:[^`\n]*/bin/)?)(log(?:broker|shipper|receiver)) ([^`\n|&#]*)", re.MULTILINE
)


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of code of a page that are marked with a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[tuple[str, str]]:
    """Return the program and arguments of each command in a text: in backticks or on a line."""
    found = _COMMAND.findall(text.replace("\\\n", " "))
    # one that ends a quoted command of a shell is followed by its quote
    return [
        (name, arguments[:-1] if arguments.count("'") % 2 else arguments)
        for name, arguments in found
    ]


def find_missing(shown: str, written: str) -> list[str]:
    """Return the lines of an output on a page that were not written.

    Numbers and the widths of columns may differ, and `…` is any text.
    """
    lines = set(map(_normal, written.splitlines()))
    wanted = {line: re.escape(_normal(line)).replace("…", ".*") for line in shown.splitlines()}
    return [line for line, one in wanted.items() if not any(map(re.compile(one).fullmatch, lines))]


def _normal(line: str) -> str:
    return " ".join(re.sub(r"\d+", "0", re.sub(r"\b[0-9a-f]{8}\b", "0", line)).split())


def untrue_commands(text: str) -> list[tuple[str, str]]:
    return [command for command in commands(text) if not _takes(*command)]


def _takes(program: str, text: str) -> bool:
    """Whether a program's parser accepts a command, which may lack required arguments."""
    command: click.Command = PROGRAMS[program]
    context, arguments = click.Context(command), shlex.split(re.sub(r"\bN\b", "2", text))
    while isinstance(command, click.Group) and arguments:
        if (found := command.get_command(context, arguments[0])) is None:
            if program == "logbroker" and not arguments[0].startswith("-"):
                return False
            break
        command, arguments = found, arguments[1:]
    try:
        command.make_context(program, arguments)
    except (click.exceptions.Exit, click.MissingParameter):
        return True
    except click.UsageError as error:
        return "requires an argument" in error.message
    return True
