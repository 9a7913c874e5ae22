"""What all commands that compare systems share: options, and what they do with results."""

import os
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path

import click

from bench import machine, provenance
from bench.field.catalogue import OURS, systems
from bench.field.logship import Logship
from bench.field.system import System
from bench.result import Record, write
from bench.resulttext import plain
from bench.trial import Case, tried
from receiver.spark.java import find_java

_ROOT = Path(__file__).parents[1]
_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Question:
    """A command's question: its name, its figures, and those by which systems are compared."""

    command: str
    about: str
    compared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """Who is measured, how often, on which file system, and where results are kept."""

    systems: tuple[System, ...]
    runs: int
    work_dir: Path | None
    results: Path

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Make a folder for the length of a measurement."""
        with tempfile.TemporaryDirectory(prefix="logship-bench-", dir=self.work_dir) as name:
            yield Path(name)

    def ours(self) -> "Field":
        """Return it with us alone, for what can be asked of nobody else."""
        return replace(self, systems=(Logship(),))

    def only(self, names: Container[str]) -> "Field":
        """Return it with those of these names that were chosen."""
        return replace(self, systems=tuple(one for one in self.systems if one.name in names))

    def answer(self, question: Question, cases: Iterable[Case], folder: Path) -> None:
        """Measure one case after the other, keep what was found after each, and show it.

        Exits with 1 when a line of ours was not as it was written.
        """
        record = _begun(question, folder)
        for case in cases:
            results = tried(case, self.systems, self.runs, folder, _say)
            record = replace(record, results=(*record.results, *results))
            write(self.results, record)
        print(plain(record))
        ours = [run for one in record.results if one.system == OURS for run in one.runs]
        sys.exit(0 if all(run.holds for run in ours) else 1)


def field_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that make a `Field`, which it gets as its first argument."""

    @wraps(command)
    def with_field(
        names: tuple[str, ...],
        runs: int,
        unpacked: Path,
        work_dir: Path | None,
        results: Path,
        **others: object,
    ) -> None:
        command(Field(_chosen(names, unpacked), runs, work_dir, results), **others)

    decorated: Callable[..., None] = with_field
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _chosen(names: tuple[str, ...], unpacked: Path) -> tuple[System, ...]:
    every = systems(unpacked.absolute())
    for name in names:
        if name not in every:
            raise click.BadParameter(f"{name}: there are {', '.join(every)}")
    return tuple(every[name] for name in names or every)


_OPTIONS = (
    click.option(
        "--system", "names", multiple=True, help="Measure this one; all if none is given."
    ),
    click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True),
    click.option(
        "--unpacked",
        default=".peers",
        show_default=True,
        type=_PATH,
        help="Where packages are unpacked, those of a peer in a folder of its name.",
    ),
    click.option(
        "--work-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Folder to measure in; one for temporary files if not given.",
    ),
    click.option(
        "--results", default=".bench", show_default=True, type=_PATH, help="Folder for the results."
    ),
)


def _begun(question: Question, folder: Path) -> Record:
    what = provenance.describe_code(_ROOT)
    return Record(
        question.command,
        question.about,
        question.compared,
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),  # noqa: TID251 - a record has a date
        what.commit,
        what.code,
        what.dirty,
        {**what.versions, "java": find_java(os.environ).version},
        machine.describe_machine(folder),
    )


def _say(text: str) -> None:
    print(text, flush=True)
