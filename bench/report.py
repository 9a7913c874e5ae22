"""Write the tables and pictures of README and docs/benchmarks.md: `python -m bench.report`.

The only way in which any of them is written.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from bench.brief import brief
from bench.result import Record, read
from bench.resulttext import markdown

_ROOT = Path(__file__).parents[1]
_PATH = click.Path(path_type=Path)
README = _ROOT / "README.md"
PAGE = _ROOT / "docs/benchmarks.md"
RESULTS = _ROOT / "bench/results"
TABLES = "README.md"
"""The file beside the results that has all of their tables."""
BEGIN = "<!-- made by `python -m bench.report`, never by hand -->"
END = "<!-- end of what is made -->"
_FIRST = ("fleet", "steady", "restart", "drain", "table", "search", "source")


def summary(readme: str, records: Sequence[Record]) -> str:
    """Return the README with its table of comparison; raises ValueError without markers for it."""
    return exchanged(readme, brief(records), BEGIN, END)


def reported(page: str, records: Sequence[Record]) -> str:
    """Return the page of benchmarks with its summary; raises ValueError without markers for it."""
    first = [one for name in _FIRST for one in records if one.command == name]
    parts = [_part(one, "../bench/results/") for one in first]
    text = "\n".join(parts) if records else "Nothing is measured yet.\n"
    return exchanged(page, text, BEGIN, END)


def tables(records: Sequence[Record]) -> str:
    """Return all that was measured."""
    ordered = sorted(records, key=lambda one: (one.command not in _FIRST, one.command))
    parts = [_part(one) for one in ordered]
    return "\n".join(("# What was measured\n", "Made by `python -m bench.report`.\n", *parts))


def _part(record: Record, folder: str = "") -> str:
    return markdown(record, f"{folder}{record.command}.png" if record.compared else "")


def exchanged(readme: str, text: str, begin: str, end: str) -> str:
    """Return a page with new text between its two markers; raises ValueError without them."""
    head, begins, rest = readme.partition(begin)
    _, ends, tail = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"no place between {begin} and {end}")
    return f"{head}{begin}\n{text}{end}{tail}"


@click.command()
@click.option("--results", default=RESULTS, type=_PATH, help="Folder of the results.")
@click.option("--readme", default=README, type=_PATH, help="The README.")
@click.option("--page", default=PAGE, type=_PATH, help="The page of benchmarks.")
def main(results: Path, readme: Path, page: Path) -> None:
    """Draw the results of a folder, and write their tables there and into both pages."""
    from bench.charts import draw  # matplotlib is not among what tests and demo install

    records = read(results)
    for record in records:
        if record.compared:
            draw(record, results / f"{record.command}.png")
    if records:
        (results / TABLES).write_text(tables(records), "utf-8")
    readme.write_text(summary(readme.read_text("utf-8"), records), "utf-8")
    page.write_text(reported(page.read_text("utf-8"), records), "utf-8")
    click.echo(f"{len(records)} results")


if __name__ == "__main__":
    main()
