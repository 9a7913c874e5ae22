"""The command line of the comparison: one schedule, thrown at every suite that is here, ours among them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.field.peer import Peer
from tests.chaos.one import CannotRun, carried_out
from tests.chaos.order import Order, Wanted, read_words
from tests.chaos.peers.catalogue import COMMON, PEERS
from tests.chaos.shape import Shape

_OURS = "logship"
_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class _Contest:
    """What all suites are put through, and where things are."""

    order: Order
    folder: Path
    unpacked: Path
    calm: float

    @property
    def name(self) -> str:
        """The same for the same strokes."""
        wanted = self.order.wanted
        kinds = "+".join(
            family for family, names in COMMON.items() if set(names) & set(wanted.names)
        )
        return f"{kinds}, seed {self.order.shape.seed}, {wanted.most} faults"


def _wanted(_context: click.Context, _option: click.Parameter, words: str) -> tuple[str, ...]:
    try:
        wanted = read_words(words, COMMON)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return wanted.names or tuple(name for names in COMMON.values() for name in names)


def _suites(_context: click.Context, _option: click.Parameter, words: str) -> list[str]:
    names = words.split(",")
    for name in names:
        if name != _OURS and name not in PEERS:
            raise click.BadParameter(f"{name}: there are {_OURS}, {', '.join(PEERS)}")
    return names


@click.command()
@click.option("--seed", default=1, show_default=True, help="What everything is drawn from.")
@click.option("--most", default=60, show_default=True, help="How many faults strike.")
@click.option(
    "--faults",
    "kinds",
    default="all",
    callback=_wanted,
    help=f"Kinds, or families: {', '.join(COMMON)}.",
)
@click.option("--calm", default=5.0, show_default=True, help="Seconds before the first fault.")
@click.option("--hosts", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--suites", default=",".join((_OURS, *PEERS)), show_default=True, callback=_suites)
@click.option(
    "--unpacked",
    default=".peers",
    show_default=True,
    type=_PATH,
    help="Where packages are unpacked, those of a peer in a folder of its name.",
)
@click.option("--folder", type=_PATH, help="A temporary one if not given.")
def main(
    seed: int,
    most: int,
    kinds: tuple[str, ...],
    calm: float,
    hosts: int,
    suites: list[str],
    unpacked: Path,
    folder: Path | None,
) -> None:
    """Throw the same faults at other log shippers as at ours, and judge every line of every host.

    A suite that is not on this machine is left out. Ends with 0 whatever becomes of the lines: that is what is asked.
    """
    contest = _Contest(
        Order(Shape(seed=seed, hosts=hosts, plain=True), wanted=Wanted(kinds, most)),
        folder or Path(tempfile.mkdtemp(prefix="peers")),
        unpacked.absolute(),
        calm,
    )
    click.echo(f"{contest.name}, in {contest.folder}")
    for name in suites:
        try:
            _carry_out(contest, name)
        except CannotRun:
            sys.exit(2)


def _carry_out(contest: _Contest, name: str) -> None:
    folder = contest.folder / name
    if name == _OURS:
        click.echo(name)
        result: dict[str, Any] = carried_out(contest.order, folder, quiet=True)
    else:
        peer = PEERS[name]
        installed = peer.find(contest.unpacked)
        if installed is None or peer.missing(contest.unpacked):
            click.echo(f"{name} is left out: {peer.missing(contest.unpacked)}")
            return
        version = peer.version_of(installed)
        click.echo(f"{name} {version}")
        result = _peer_result(contest, peer, folder)
    click.echo(_summary(result))


def _peer_result(contest: _Contest, peer: Peer, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    contest.order.write(folder / "order.json")
    words: list[str | Path] = [sys.executable, "-m", "tests.chaos.peers.one", peer.name, folder]
    words += ["--unpacked", contest.unpacked, "--calm", str(contest.calm)]
    code = subprocess.run(words, check=False).returncode
    if code == 2:
        raise CannotRun
    if code:
        raise RuntimeError(f"the harness itself failed with {code}; see {folder}")
    found: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return found


def _summary(result: Mapping[str, Any]) -> str:
    lines = ", ".join(f"{count:,} {name}" for name, count in result["lines"].items())
    faults, misses = (sum(result[name].values()) for name in ("faults", "not_struck"))
    told = [
        f"{faults} faults in {result['strokes']} strokes, {misses} had nothing to hit",
        f"lines: {lines}",
        f"lines flowed again after {max(result['waits'], default=0):.1f} s at the longest",
        *(f"FINDING: {finding}" for finding in result["findings"]),
        f"after {result['seconds']:.0f} s",
    ]
    return "\n".join(f"  {line}" for line in told)


if __name__ == "__main__":
    main()
