"""The command line of the fault harness: one run after the other, each in a world of its own."""

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from tests.chaos.faults.catalogue import CATALOGUE, FAMILIES
from tests.chaos.one import CannotRun, carried_out
from tests.chaos.order import Order, Shape, Wanted, read_words
from tests.chaos.runlog import summary

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)


def _wanted(_context: click.Context, _option: click.Parameter, words: str) -> Wanted:
    names = {family: [kind.name for kind in kinds] for family, kinds in FAMILIES.items()}
    try:
        return read_words(words, names)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _list(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if not is_given:
        return
    for family, kinds in FAMILIES.items():
        click.echo(f"{family}:")
        for kind in kinds:
            needs = f" [{', '.join(sorted(kind.needs))}]" if kind.needs else ""
            destroys = " [destroys]" if kind.destroys else ""
            click.echo(f"  {kind.name:28} {kind.words}{needs}{destroys}")
    click.echo(f"{len(CATALOGUE)} kinds; [what a run must have for it]")
    context.exit()


@click.command()
@click.option("--seed", default=1, show_default=True, help="What everything is drawn from.")
@click.option("--runs", type=_COUNT, default=1, help="So many, with seeds one after the other.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="How long faults strike in a run.",
)
@click.option(
    "--faults",
    "wanted",
    default="all",
    show_default=True,
    callback=_wanted,
    help="Kinds or families, and how many at most, with commas between.",
)
@click.option("--hosts", type=_COUNT, default=5, show_default=True)
@click.option("--partitions", type=_COUNT, default=3, show_default=True)
@click.option(
    "--topology", type=click.Choice(["single", "cluster"]), default="single", show_default=True
)
@click.option(
    "--receivers",
    type=click.Choice(["alone", "standby", "spark"]),
    help="As the seed tells if not given.",
)
@click.option("--secured/--open", default=None, help="Whether programs have credentials.")
@click.option("--destroy", is_flag=True, help="Also what takes lines on purpose.")
@click.option(
    "--flow",
    type=click.FloatRange(min=0),
    default=90.0,
    show_default=True,
    help="Within how many seconds lines have to flow again.",
)
@click.option("--folder", type=_PATH, help="Empty or not there; a temporary one if not given.")
@click.option("--keep", is_flag=True, help="Keep a run's folder though it has passed.")
@click.option(
    "--list",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_list,
    help="List all faults.",
)
def main(
    seed: int,
    runs: int,
    minutes: float,
    wanted: Wanted,
    hosts: int,
    partitions: int,
    topology: str,
    receivers: str | None,
    secured: bool | None,
    destroy: bool,
    flow: float,
    folder: Path | None,
    keep: bool,
) -> None:
    """Throw seeded faults at a whole suite, and judge every line of every host.

    Ends with 0 if all runs have passed, with 1 if one has not.
    """
    # of lines that are destroyed none may stand twice
    chosen = {"receivers": receivers, "secured": secured, "plain": destroy or None}
    given = {name: value for name, value in chosen.items() if value is not None}
    orders = [
        Order(
            Shape.drawn(number, topology, hosts, partitions).with_(**given),
            minutes,
            wanted,
            destroy,
            flow,
        )
        for number in range(seed, seed + runs)
    ]
    place = _empty(folder)
    try:
        failed = [
            one for one in orders if not _has_passed(one, place / f"{one.shape.seed}", keep=keep)
        ]
    except CannotRun:
        sys.exit(2)
    sys.exit(1 if failed else 0)


def _empty(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="chaos"))
    if folder.exists() and any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty", param_hint="--folder")
    return folder


def _has_passed(order: Order, folder: Path, *, keep: bool) -> bool:
    """Carry out one run, and tell how it went."""
    click.echo(f"seed {order.shape.seed}: {_words(order)}, in {folder}")
    try:
        result = carried_out(order, folder)
    except RuntimeError as error:
        click.echo(str(error), err=True)
        return False
    click.echo(summary(result))
    if result["findings"]:
        click.echo(f"all there is to see is in {folder}; again: {_again(order)}")
        return False
    if not keep:
        _tidy(folder)
    return True


def _again(order: Order) -> str:
    """Return the command that draws the same strokes in the same world."""
    shape, wanted = order.shape, order.wanted
    faults = ",".join([*wanted.names, *([str(wanted.most)] if wanted.most else [])]) or "all"
    options = {
        "seed": shape.seed,
        "minutes": order.minutes,
        "faults": faults,
        "hosts": shape.hosts,
        "partitions": shape.partitions,
        "topology": shape.topology,
        "receivers": shape.receivers,
        "flow": order.flow,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words += ["--secured" if shape.secured else "--open", *(["--destroy"] if order.destroy else [])]
    return shlex.join([sys.executable, "-m", "tests.chaos", *words])


def _words(order: Order) -> str:
    shape = order.shape
    what = f"{shape.topology}, receivers {shape.receivers}"
    what += f"{', secured' if shape.secured else ''}, {shape.hosts} hosts"
    return f"{what}, {order.minutes:g} minutes"


def _tidy(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == "run.jsonl":
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    main()
