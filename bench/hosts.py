"""What the number of hosts in one partition does to what it costs to receive their lines."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from bench.arriving import arrive
from bench.backlog import LINE_BYTES
from bench.field.system import System
from bench.fill import blocks
from bench.options import Question, compare, ours
from bench.trial import Case, Outcome

_BLOCK = 20  # lines, as thousands of hosts with little to say send them
_ABOUT = """\
Blocks of 20 lines of 200 bytes, as they are, from so many hosts, from when all are in \
the stream until all are in the hosts' files and committed; every host's files are checked. \
Ours alone: what so many agents of others would send cannot be prepared here. CPU: user and \
system seconds of broker and receiver per GB (1e9 bytes) of lines."""


def _measure(_system: System, folder: Path, hosts: int, lines: int) -> Outcome:
    return arrive(folder, 1, lines * LINE_BYTES, lambda: blocks(lines, hosts, _BLOCK))


@compare(Question("hosts", _ABOUT, ("MB/s", "CPU s/GB")), ours)
@click.option(
    "--hosts", multiple=True, type=int, default=(1, 5, 100, 1_000, 5_000), show_default=True
)
@click.option("--megabytes", default=200, show_default=True, help="Of lines of all hosts.")
def main(_: Path, hosts: tuple[int, ...], megabytes: int) -> Iterator[Case]:
    """Measure what hosts in one partition cost; exits with 1 when a line is not as it was sent."""
    lines = megabytes * 1_000_000 // LINE_BYTES
    for number in hosts:
        parameters = {"hosts": number, "megabytes": megabytes, "line_bytes": LINE_BYTES}
        measure = partial(_measure, hosts=number, lines=lines)
        yield Case(f"{number:,} host{'s'[: number > 1]}", parameters, measure)


if __name__ == "__main__":
    main()
