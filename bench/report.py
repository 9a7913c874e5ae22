"""Writes the README's figures anew from the kept results, and their tables and pictures beside them: `python -m bench.report`.

The only way in which any of them is written.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from bench import goals
from bench.charts import draw
from bench.readme import exchanged
from bench.result import Record, read
from bench.resulttext import markdown

__all__ = ["BEGIN", "END", "README", "RESULTS", "TABLES", "main", "reported", "tables"]

_ROOT = Path(__file__).parents[1]
_PATH = click.Path(path_type=Path)
README = _ROOT / "README.md"
RESULTS = _ROOT / "bench/results"
TABLES = "README.md"
"""The file beside the results that has all of their tables."""
BEGIN = "<!-- made by `python -m bench.report`, never by hand -->"
END = "<!-- measured so far -->"
_FIRST = ("drain", "steady", "stages")


def reported(readme: str, records: Sequence[Record]) -> str:
    """Return the README with what matters most of what was measured; raises ValueError where it has no place for it."""
    first = [one for name in _FIRST for one in records if one.command == name]
    parts = [_part(one, "bench/results/") for one in first]
    text = "\n".join((goals.told(records), *parts)) if records else "Nothing is measured yet.\n"
    return exchanged(readme, text, BEGIN, END)


def tables(records: Sequence[Record]) -> str:
    """Return all that was measured."""
    ordered = sorted(records, key=lambda one: (one.command not in _FIRST, one.command))
    parts = [_part(one) for one in ordered]
    return "\n".join(("# What was measured\n", "Made by `python -m bench.report`.\n", *parts))


def _part(record: Record, folder: str = "") -> str:
    return markdown(record, f"{folder}{record.command}.png" if record.compared else "")


@click.command()
@click.option("--results", default=RESULTS, type=_PATH, help="Folder of the results.")
@click.option("--readme", default=README, type=_PATH, help="Where they are told.")
def main(results: Path, readme: Path) -> None:
    """Draw the results of a folder, and tell them there and in the README."""
    records = read(results)
    for record in records:
        if record.compared:
            draw(record, results / f"{record.command}.png")
    if records:
        (results / TABLES).write_text(tables(records), "utf-8")
    readme.write_text(reported(readme.read_text("utf-8"), records), "utf-8")
    click.echo(f"{len(records)} results")


if __name__ == "__main__":
    main()
