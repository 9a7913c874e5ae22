"""The commands that a text names, and whether the programs take them."""

import re
import shlex

import click

from broker.cli import group as logbroker
from receiver.cli import logreceiver
from shipper.cli import logshipper

PROGRAMS: dict[str, click.Group] = {
    "logbroker": logbroker,
    "logreceiver": logreceiver,
    "logshipper": logshipper,
}
_COMMAND = re.compile(
    r"(?:`|^(?:[^`\n]*/bin/)?)(log(?:broker|shipper|receiver)) ([^`\n|&#]*)", re.MULTILINE
)


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of code of a page that are marked with a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[tuple[str, str]]:
    """Return the program and the words of each command that a text names, in backticks or on a line of its own."""
    return _COMMAND.findall(text.replace("\\\n", " "))


def untrue_commands(text: str) -> list[tuple[str, str]]:
    """Return those of the commands that the programs do not take."""
    return [
        (program, words)
        for program, words in commands(text)
        if not _takes(program, shlex.split(words))
    ]


def _takes(program: str, words: list[str]) -> bool:
    """Whether a program has a command, and that command the options that are given."""
    command: click.Command = PROGRAMS[program]
    context = click.Context(command)
    while words and isinstance(command, click.Group):
        if (found := command.get_command(context, words[0])) is None:
            break
        command, words = found, words[1:]
    known = {
        "--help",
        "--version",
        *(name for one in command.params for name in (*one.opts, *one.secondary_opts)),
    }
    is_group_alone = isinstance(command, click.Group) and program == "logbroker"
    return {word for word in words if word.startswith("--")} <= known and not (
        is_group_alone and [word for word in words if not word.startswith("-")]
    )
