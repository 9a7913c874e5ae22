"""Measure what partitions bring on one machine: one receiver of 1, 2, 4 and 8 of them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from bench.arriving import arrive
from bench.backlog import LINE_BYTES
from bench.field.system import System
from bench.fill import BLOCK_LINES, blocks
from bench.options import Question, compare, ours
from bench.trial import Case, Outcome

_HOSTS = 64
_ABOUT = """\
Compressed blocks of 256 KiB from 64 hosts, spread over so many partitions of one \
receiver, from when all are in the stream until all are in the hosts' files and committed; \
every host's files are checked. Ours alone: what so many agents of others would send cannot be \
prepared here. CPU: user and system seconds of broker and receiver per GB (1e9 bytes) of lines."""


def _measure(_system: System, folder: Path, partitions: int, lines: int) -> Outcome:
    return arrive(
        folder,
        partitions,
        lines * LINE_BYTES,
        lambda: blocks(lines, _HOSTS, BLOCK_LINES, compressed=True),
    )


@compare(Question("partitions", _ABOUT, ("MB/s", "CPU s/GB")), ours)
@click.option("--partitions", multiple=True, type=int, default=(1, 2, 4, 8), show_default=True)
@click.option("--megabytes", default=1_000, show_default=True, help="Of lines of all hosts.")
def main(_: Path, partitions: tuple[int, ...], megabytes: int) -> Iterator[Case]:
    """Measure what partitions bring; exits with 1 when a line is not as it was sent."""
    lines = megabytes * 1_000_000 // LINE_BYTES
    for number in partitions:
        parameters = {"partitions": number, "megabytes": megabytes, "line_bytes": LINE_BYTES}
        measure = partial(_measure, partitions=number, lines=lines)
        yield Case(f"{number} partition{'s'[: number > 1]}", parameters, measure)


if __name__ == "__main__":
    main()
