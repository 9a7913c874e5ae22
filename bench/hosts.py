"""What the number of hosts in one partition does to what it costs to receive their lines."""

from functools import partial
from pathlib import Path

import click

from bench.arriving import arrive
from bench.backlog import LINE_BYTES
from bench.field.system import System
from bench.fill import blocks
from bench.options import Field, Question, field_options
from bench.trial import Case, Outcome

_BLOCK = 20  # lines, as thousands of hosts with little to say send them
_ABOUT = """\
Blocks of 20 lines of 200 bytes, as they are, from so many hosts, from when all are in \
the stream until all are in the hosts' files and committed; every host's files are checked. \
Ours alone: what so many agents of others would send cannot be prepared here. CPU: user and \
system seconds of broker and receiver per GB (1e9 bytes) of lines."""
_QUESTION = Question("hosts", _ABOUT, ("MB/s", "CPU s/GB"))


def _measure(_system: System, folder: Path, hosts: int, lines: int) -> Outcome:
    return arrive(folder, 1, lines * LINE_BYTES, lambda: blocks(lines, hosts, _BLOCK))


@click.command()
@click.option(
    "--hosts", multiple=True, type=int, default=(1, 5, 100, 1_000, 5_000), show_default=True
)
@click.option("--megabytes", default=200, show_default=True, help="Of lines of all hosts.")
@field_options
def main(field: Field, hosts: tuple[int, ...], megabytes: int) -> None:
    """Measure what hosts in one partition cost; exits with 1 when a line is not as it was sent."""
    lines = megabytes * 1_000_000 // LINE_BYTES
    cases = [
        Case(
            f"{number:,} host{'s'[: number > 1]}",
            {"hosts": number, "megabytes": megabytes, "line_bytes": LINE_BYTES},
            partial(_measure, hosts=number, lines=lines),
        )
        for number in hosts
    ]
    with field.folder() as folder:
        field.ours().answer(_QUESTION, cases, folder)


if __name__ == "__main__":
    main()
