"""The command line of the comparison: one schedule, thrown at every suite that is here, ours among them."""

import sys
import tempfile
from pathlib import Path

import click

from tests.chaos.one import CannotRun, carried_out
from tests.chaos.order import Order, Shape, Wanted, read_words
from tests.chaos.peers.run import COMMON, PEERS
from tests.chaos.runlog import summary

_OURS = "logship"
_PATH = click.Path(path_type=Path)


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
    order = Order(Shape(seed=seed, hosts=hosts, plain=True), wanted=Wanted(kinds, most))
    place, packages = folder or Path(tempfile.mkdtemp(prefix="peers")), unpacked.absolute()
    families = "+".join(family for family, names in COMMON.items() if set(names) & set(kinds))
    click.echo(f"{families}, seed {seed}, {most} faults, in {place}")
    for name in suites:
        if name != _OURS and (missing := PEERS[name].missing(packages)):
            click.echo(f"{name} is left out: {missing}")
            continue
        click.echo(name)
        peer = () if name == _OURS else ("--peer", name, "--unpacked", packages, "--calm", calm)
        try:
            result = carried_out(order, place / name, "--quiet", *map(str, peer))
        except CannotRun:
            sys.exit(2)
        click.echo("".join(f"  {line}\n" for line in summary(result).splitlines()), nl=False)


if __name__ == "__main__":
    main()
