"""Where new secrets go: a file each that an operator carries away, or standard output where it is asked for."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from broker.app.exits import OperatorError
from broker.app.folder import make_folder
from broker.granting.carried import Carried, file_name
from broker.granting.handing import Sheet, hand_over
from broker.granting.identity import Identity

__all__ = ["Handing", "handing_of", "handing_options"]

_FEW = 10
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Handing:
    """How they are handed over; `output` is a file, a folder, `-`, or empty for files here."""

    output: str
    form: str
    force: bool

    @property
    def is_printed(self) -> bool:
        """Whether standard output gets the secrets, and nothing else."""
        return self.output == "-"

    def check(self, number: int) -> None:
        """Raise `click.UsageError` for what cannot be done with that many."""
        if self.is_printed and self.form == "toml" and number > 1:
            raise click.UsageError(
                "several credentials go to standard output as --format json, an object a line"
            )

    def give(self, carried: Sequence[Carried]) -> list[Sheet]:
        """Hand them over and return the files made; raises `OperatorError`, and then there are none."""
        if not carried:
            return []  # nor is a folder looked at: this one may be nobody's to enter
        if self.is_printed:
            for one in carried:
                click.echo(self._text(one, "FILE"), nl=False)
            sys.stdout.flush()  # who would read them may be gone: then nothing is changed
            return []
        folder, name = self._place(len(carried))
        sheets = []
        for one in carried:
            path = folder / (name or file_name(one.identity, self.form))
            sheets.append(Sheet(path, self._text(one, path.name)))
        hand_over(sheets, force=self.force)
        return sheets

    def words(self, carried: Sequence[Carried], sheets: Sequence[Sheet]) -> list[str]:
        """Say what was made, in lines for a person."""
        if len(sheets) > _FEW:
            return [f"{len(sheets)} credentials are in {sheets[0].path.parent}/, a file each"]
        return [
            f"{_whose(one.identity)}: its credential is {sheet.path}; "
            f"carry it there, then {one.hint(sheet.path.name)}"
            for one, sheet in zip(carried, sheets, strict=False)
        ]

    def _text(self, one: Carried, file: str) -> str:
        return one.as_json() if self.form == "json" else one.as_toml(file)

    def _place(self, number: int) -> tuple[Path, str]:
        target = Path(self.output)
        if self.output and number == 1 and not self.output.endswith("/") and not target.is_dir():
            return target.parent, target.name
        try:
            make_folder(target, 0o700).close()
        except OSError as error:
            raise OperatorError(
                f"cannot make the folder {target}: {error.strerror}; check --output"
            ) from None
        return target, ""


def handing_options(command: Command) -> Command:
    """Add the options of `Handing`, which `handing_of` reads."""
    for option in (
        click.option("--force", is_flag=True, help="Replace files that are there."),
        click.option(
            "--format",
            "form",
            type=click.Choice(["toml", "json"]),
            default="toml",
            show_default=True,
            help="A file of settings, or an object for programs.",
        ),
        click.option(
            "--output",
            default="",
            metavar="FILE",
            help="Where the secret goes: a file, a folder for several, - for standard output; default: KIND-NAME.toml here.",
        ),
    ):
        command = option(command)
    return command


def handing_of(options: dict[str, Any]) -> Handing:
    """Return the options, taken out of those of a command."""
    return Handing(options.pop("output"), options.pop("form"), options.pop("force"))


def _whose(identity: Identity) -> str:
    kind = identity.kind.value
    return kind if identity.name == kind else f"{kind} {identity.name}"  # the lone admin
