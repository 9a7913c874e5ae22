"""The command line of the fault harness."""

import sys
import tempfile
from pathlib import Path

import click

from tests.chaos import apart
from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.run import run
from tests.chaos.schedule import draw
from tests.chaos.shape import Shape
from tests.chaos.tools import machine_features, missing_here


@click.command()
@click.option("--seed", default=1, show_default=True, help="What everything is drawn from.")
@click.option("--minutes", default=5.0, show_default=True, help="How long faults strike.")
@click.option("--faults", default="all", show_default=True, help="Kinds, families or a number.")
@click.option("--hosts", default=5, show_default=True)
@click.option("--partitions", default=3, show_default=True)
@click.option("--topology", type=click.Choice(["single", "cluster"]), default="single")
@click.option("--receivers", type=click.Choice(["alone", "standby", "spark"]), default=None)
@click.option("--secured/--open", default=None, help="Whether programs have credentials.")
@click.option("--folder", type=click.Path(path_type=Path), default=None)
def main(
    seed: int,
    minutes: float,
    faults: str,
    hosts: int,
    partitions: int,
    topology: str,
    receivers: str | None,
    secured: bool | None,
    folder: Path | None,
) -> None:
    """Throw seeded faults at a whole suite, and judge every line of every host."""
    apart.enter("tests.chaos", sys.argv[1:])
    folder = folder or Path(tempfile.mkdtemp(prefix="chaos"))
    folder.mkdir(parents=True, exist_ok=True)
    click.echo(folder)
    shape = Shape.drawn(seed, topology, hosts, partitions)
    if receivers:
        shape = shape.with_(receivers=receivers)
    if secured is not None:
        shape = shape.with_(secured=secured)
    for missing in missing_here():
        click.echo(missing)
    features = shape.features | machine_features()
    kinds = [
        each.kind
        for each in CATALOGUE.values()
        if each.kind.needs <= features and not each.kind.destroys
    ]
    if faults != "all" and not faults.isdigit():
        kinds = [kind for kind in kinds if kind.name in faults.split(",")]
    result = run(
        folder,
        shape,
        draw(seed, kinds),
        minutes=minutes,
        faults=float(faults) if faults.isdigit() else float("inf"),
    )
    click.echo(result.as_json())
    for finding in result.findings:
        click.echo(finding)
    sys.exit(0 if result.has_passed else 1)


if __name__ == "__main__":
    main()
