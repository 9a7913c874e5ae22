"""What all commands that compare systems share: options, and what they do with results."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path

import click

from bench import machine
from bench.field.catalogue import OURS, systems
from bench.field.logship import Logship
from bench.field.system import System
from bench.result import Record, write
from bench.resulttext import plain
from bench.trial import Case, measure
from receiver.spark.java import find_java

_ROOT = Path(__file__).parents[1]
_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Question:
    """A command's question: its name, its figures, and those by which systems are compared."""

    command: str
    about: str
    compared: tuple[str, ...]


def compare(
    question: Question,
    systems: Callable[[Sequence[System]], Iterable[System]] = tuple,
    runs: int = 3,
) -> Callable[[Callable[..., Iterable[Case]]], click.Command]:
    """Return a decorator that makes a command of a function that yields cases.

    The function gets a folder on the file system to measure on, and its own options. `systems`
    selects among those that were chosen. Results are kept and shown after each case; the command
    exits with 1 when a line of ours was not as it was written.
    """

    def decorate(cases: Callable[..., Iterable[Case]]) -> click.Command:
        @wraps(cases)
        def run(
            names: tuple[str, ...],
            runs: int,
            unpacked: Path,
            work_dir: Path | None,
            results: Path,
            **others: object,
        ) -> None:
            chosen = tuple(systems(_chosen(names, unpacked)))
            with tempfile.TemporaryDirectory(prefix="logship-bench-", dir=work_dir) as name:
                folder = Path(name)
                record = _begin(question, folder)
                for case in cases(folder, **others):
                    found = measure(case, chosen, runs, folder, _say)
                    record = replace(record, results=(*record.results, *found))
                    write(results, record)
            print(plain(record))
            ours = [run for one in record.results if one.system == OURS for run in one.runs]
            sys.exit(0 if all(run.holds for run in ours) else 1)

        command: Callable[..., None] = run
        for option in reversed(_OPTIONS):
            command = option(command)
        return click.command(context_settings={"default_map": {"runs": runs}})(command)

    return decorate


def ours(_: Sequence[System]) -> tuple[System, ...]:
    """Select us alone, for what can be asked of nobody else."""
    return (Logship(),)


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
    click.option("--runs", type=click.IntRange(min=1), show_default=True),
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


def _begin(question: Question, folder: Path) -> Record:
    code = machine.describe_code(_ROOT)
    return Record(
        command=question.command,
        about=question.about,
        compared=question.compared,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),  # noqa: TID251 - a record has a date
        commit=code.commit,
        code=code.code,
        dirty=code.dirty,
        versions={**code.versions, "java": find_java(os.environ).version},
        machine=machine.describe_machine(folder),
    )


def _say(text: str) -> None:
    print(text, flush=True)
