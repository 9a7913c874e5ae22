"""`python -m tests.docs.option_tables` writes the options of the programs into the pages."""

import re
from pathlib import Path

import click

from broker.commands.run import run
from receiver.cli import logreceiver
from receiver.search.cli import search
from receiver.search.settings import SearchSettings
from receiver.settings import ReceiverSettings
from receiver.table.cli import table
from receiver.table.settings import TableSettings
from shipper.cli import logshipper
from shipper.settings import ShipperSettings

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("shipper", "receiver", "broker", "security", "tables")
_COMMANDS: dict[str, click.Command] = {
    "logshipper": logshipper,
    "logreceiver": logreceiver,
    "logreceiver search": search,
    "logreceiver table": table,
    "logbroker run": run,
}
_OWN = {
    "logreceiver": ReceiverSettings,
    "logreceiver search": SearchSettings,
    "logreceiver table": TableSettings,
}
_MARKED = re.compile(r"(<!-- options: (.+?) -->\n).*?(<!-- end of options -->)", re.DOTALL)
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$", re.DOTALL)


def renewed(text: str) -> str:
    """Return a page with the options as they are now."""
    return _MARKED.sub(lambda found: f"{found[1]}{_table(found[2])}{found[3]}", text)


def _options(program: str) -> list[click.Option]:
    shared = {option.name for option in _of(logshipper)} - set(ShipperSettings.__annotations__)
    if program == "connection":
        return [option for option in _of(logshipper) if option.name in shared]
    own = set(_OWN[program].__annotations__) if program in _OWN else set()
    command = _COMMANDS[program]
    return [option for option in _of(command) if option.name in own or option.name not in shared]


def _of(command: click.Command) -> list[click.Option]:
    return [
        option
        for option in command.params
        if isinstance(option, click.Option) and option.name not in ("version", "help")
    ]


def _table(program: str) -> str:
    variables = "" if program == "connection" else f", variable `{_prefix(program)}…`"
    head = f"| option{variables} | default | meaning |"
    return "\n".join((head, "|---|---|---|", *map(_row, _options(program)))) + "\n"


def _prefix(program: str) -> str:
    return next(filter(None, (getattr(one, "prefix", "") for one in _COMMANDS[program].params)))


def _row(option: click.Option) -> str:
    text = " ".join((option.help or "").split())
    default = _DEFAULT.search(text)
    shown = {"True": "yes", "False": "no"}.get(default[1], f"`{default[1]}`") if default else ""
    names = "` / `".join((*option.opts, *option.secondary_opts))
    # a bar would end the cell
    value = "" if option.is_flag else f" {option.metavar or 'TEXT'}".replace("|", "\\|")
    return f"| `{names}{value}` | {shown} | {_DEFAULT.sub('', text)} |"


if __name__ == "__main__":
    for _page in PAGES:
        _path = DOCS / f"{_page}.md"
        _path.write_text(renewed(_path.read_text("utf-8")), "utf-8")
