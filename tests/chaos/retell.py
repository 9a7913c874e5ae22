"""Writes the README's record anew from the log of runs: `make chaos-record`. The only way in which it is written."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from bench import provenance
from bench.readme import exchanged
from tests.chaos import record
from tests.chaos.faults.catalogue import FAMILIES
from tests.chaos.recordtext import BEGIN, END, told

__all__ = ["README", "RECORD", "retold"]

_ROOT = Path(__file__).parents[2]
README = _ROOT / "README.md"
RECORD = _ROOT / "tests/chaos/record.jsonl"


def retold(readme: str, entries: Iterable[record.Entry]) -> str:
    """Return the README with what these runs have shown; raises ValueError where it has no place for it."""
    families = {family: [one.kind.name for one in kinds] for family, kinds in FAMILIES.items()}
    return exchanged(readme, told(list(entries), families), BEGIN, END)


@click.command()
@click.option(
    "--mended",
    nargs=2,
    multiple=True,
    metavar="DATE COMMIT",
    help="The run that began at DATE failed by what COMMIT has mended.",
)
def main(mended: tuple[tuple[str, str], ...]) -> None:
    """Look which commits are the project's, and write the record into the README."""
    commits, codes = provenance.known_to(_ROOT)
    mends = dict(mended)
    entries = [
        replace(
            entry,
            lineage="known" if entry.commit in commits or entry.code in codes else "unknown",
            mended_by=mends.pop(entry.date, entry.mended_by),
        )
        for entry in sorted(record.read(RECORD), key=lambda entry: entry.date)
    ]
    if mends:
        raise click.UsageError(f"no run of the record began at {', '.join(mends)}")
    record.write(RECORD, entries)
    README.write_text(retold(README.read_text("utf-8"), record.read(RECORD)), "utf-8")
    click.echo(f"{len(entries)} runs")


if __name__ == "__main__":
    main()
