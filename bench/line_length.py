"""Measure how the length of lines changes the rate of a backlog, and its cost."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from bench.backlog import write_lines_of_length
from bench.drain import drain
from bench.options import Question, compare
from bench.trial import Case

_ABOUT = """\
As `drain`, with lines of other lengths: from the start of the agent until all of a backlog is \
in the received file and committed; every byte is checked. CPU: user and system seconds of all \
processes per GB (1e9 bytes) of lines."""


@compare(Question("line_length", _ABOUT, ("MB/s", "CPU s/GB")))
@click.option(
    "--bytes",
    "lengths",
    multiple=True,
    type=click.IntRange(min=20),
    default=(50, 200, 1_000, 10_000, 100_000),
    show_default=True,
    help="Bytes of a line, with its newline.",
)
@click.option("--megabytes", default=400, show_default=True, help="Size of each backlog.")
def main(folder: Path, lengths: tuple[int, ...], megabytes: int) -> Iterator[Case]:
    """Measure how fast backlogs drain by the length of their lines.

    Exits with 1 if a line of ours is not as it was written.
    """
    (logs := folder / "logs").mkdir()
    for length in lengths:
        write_lines_of_length(logs / "backlog.log", megabytes * 1_000_000, length)
        parameters = {"line_bytes": length, "megabytes": megabytes}
        yield Case(f"{length:,} B", parameters, partial(drain, logs=logs, line_bytes=length))


if __name__ == "__main__":
    main()
