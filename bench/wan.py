"""Measure how fast a host's backlog drains over a long way: the host in a network namespace.

The namespaces, and all in them, go with the bench.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.drain import drain
from bench.field.fluent_bit import FLUENT_BIT_COMPRESSED, FLUENT_BIT_FAST
from bench.field.pair import Pair
from bench.field.system import System
from bench.link import Link
from bench.options import Question, compare
from bench.trial import Case
from tests.support.processes import Processes, ProgramDied

_INSIDE = "LOGSHIP_BENCH_NAMESPACE"
_ABOUT = """\
As `drain`, with the host far from the centre, so many milliseconds there and back: from the \
start of the agent until all of a backlog of 200-byte lines is in the received file and \
committed; every byte is checked. CPU: user and system seconds of all programs but the line per \
GB (1e9 bytes) of lines. RELP and syslog send lines as they are, and compress only within TLS; \
Fluent Bit compresses in a run of its own. The line is a program, which carries some 50 MB/s and \
takes a processor for it."""


def _also_compressed(systems: Iterable[System]) -> Iterator[System]:
    for system in systems:
        yield system
        if isinstance(system, Pair) and system.peer is FLUENT_BIT_FAST:
            yield replace(system, name=f"{system.name}-gzip", peer=FLUENT_BIT_COMPRESSED)


@compare(Question("wan", _ABOUT, ("MB/s", "CPU s/GB")), _also_compressed)
@click.option("--megabytes", default=100, show_default=True, help="Size of the backlog.")
@click.option(
    "--milliseconds",
    "round_trips",
    multiple=True,
    type=click.IntRange(min=1),
    default=(20, 100),
    show_default=True,
    help="There and back.",
)
def main(folder: Path, megabytes: int, round_trips: tuple[int, ...]) -> Iterator[Case]:
    """Measure how fast a backlog drains from far away.

    Exits with 1 if a line of ours is not as it was written.
    """
    (logs := folder / "logs").mkdir()
    write_backlog(logs / "backlog.log", megabytes * 1_000_000 // LINE_BYTES)
    for milliseconds in round_trips:
        (place := folder / f"line-{milliseconds}").mkdir()
        with Processes(place) as processes:
            try:
                link = Link(place, processes, milliseconds / 2000)
            except (OSError, subprocess.CalledProcessError, ProgramDied) as error:
                sys.exit(_refusal(error))
            parameters = {"megabytes": megabytes, "line_bytes": LINE_BYTES}
            parameters["round_trip_ms"] = milliseconds
            with closing(link):
                measure = partial(drain, logs=logs, link=link)
                yield Case(f"{milliseconds} ms", parameters, measure, far=True)


def _go_inside() -> None:
    os.environ[_INSIDE] = "1"
    who = ["-n"] if os.geteuid() == 0 else ["-rn"]
    try:
        subprocess.run(["unshare", *who, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(_refusal(error))
    os.execvp("unshare", ["unshare", *who, sys.executable, "-m", "bench.wan", *sys.argv[1:]])


def _refusal(error: Exception) -> str:
    said = error.stderr.decode() if isinstance(error, subprocess.CalledProcessError) else str(error)
    reason = said.strip().rpartition("\n")[2]
    return f"cannot make a link: it takes namespaces and /dev/net/tun: {reason}"


if __name__ == "__main__":
    if _INSIDE not in os.environ:
        _go_inside()
    main()
