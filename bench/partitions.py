"""Measure what partitions bring on one machine: one receiver of 1, 2, 4 and 8 of them."""

from functools import partial
from pathlib import Path

import click

from bench.arriving import arrive
from bench.backlog import LINE_BYTES
from bench.field.system import System
from bench.fill import BLOCK_LINES, blocks
from bench.options import Field, Question, field_options
from bench.trial import Case, Outcome

_HOSTS = 64
_ABOUT = """\
Compressed blocks of 256 KiB from 64 hosts, spread over so many partitions of one \
receiver, from when all are in the stream until all are in the hosts' files and committed; \
every host's files are checked. Ours alone: what so many agents of others would send cannot be \
prepared here. CPU: user and system seconds of broker and receiver per GB (1e9 bytes) of lines."""
_QUESTION = Question("partitions", _ABOUT, ("MB/s", "CPU s/GB"))


def _measure(_system: System, folder: Path, partitions: int, lines: int) -> Outcome:
    return arrive(
        folder,
        partitions,
        lines * LINE_BYTES,
        lambda: blocks(lines, _HOSTS, BLOCK_LINES, compressed=True),
    )


@click.command()
@click.option("--partitions", multiple=True, type=int, default=(1, 2, 4, 8), show_default=True)
@click.option("--megabytes", default=1_000, show_default=True, help="Of lines of all hosts.")
@field_options
def main(field: Field, partitions: tuple[int, ...], megabytes: int) -> None:
    """Measure what partitions bring; exits with 1 when a line is not as it was sent."""
    lines = megabytes * 1_000_000 // LINE_BYTES
    cases = [
        Case(
            f"{number} partition{'s'[: number > 1]}",
            {"partitions": number, "megabytes": megabytes, "line_bytes": LINE_BYTES},
            partial(_measure, partitions=number, lines=lines),
        )
        for number in partitions
    ]
    with field.folder() as folder:
        field.ours().answer(_QUESTION, cases, folder)


if __name__ == "__main__":
    main()
