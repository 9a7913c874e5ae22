"""The command line of the fault runs: each run is a process in namespaces of its own."""

import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import click

import tests.chaos.faults  # noqa: F401 - adds all faults
from tests.chaos.fault import FAULTS, chosen, draw
from tests.chaos.run import Result, run
from tests.chaos.shape import Shape, machine_features, missing_here

_MARK = "LOGSHIP_CHAOS_APART"
_APART = ("--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
_AS_ROOT = ("--user", "--map-root-user")
_TOOLS = ("unshare", "nsenter", "mount", "ip")
_INIT = '"$@"; exit $?'  # the first process of a namespace inherits orphans, and a shell reaps them
_COUNT = click.IntRange(min=1)
_FOLDER = click.Path(path_type=Path)
_PARTITIONS = (3, 16)
_RECEIVERS = ("alone", "standby", "spark")


def _list(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if not is_given:
        return
    for group, faults in groupby(FAULTS.values(), lambda one: one.group):
        click.echo(f"{group}:")
        for one in faults:
            needs = ", ".join(sorted(one.needs))
            click.echo(f"  {one.name}" + (f" (needs {needs})" if needs else ""))
    context.exit()


@click.command()
@click.option("--seed", default=1, show_default=True, help="What everything is drawn from.")
@click.option("--runs", type=_COUNT, default=1, help="So many, with seeds one after the other.")
@click.option("--minutes", default=5.0, show_default=True, help="How long faults strike in a run.")
@click.option("--faults", default="all", show_default=True, help="Names or groups of faults.")
@click.option("--hosts", type=_COUNT, default=5, show_default=True)
@click.option("--partitions", type=_COUNT, help="Drawn from the seed by default: 3 or 16.")
@click.option("--slots", type=_COUNT, help="Tasks of a receiver: one for 16 partitions, else two.")
@click.option("--topology", type=click.Choice(["single", "cluster"]), default="single")
@click.option("--receivers", type=click.Choice(_RECEIVERS), help="Drawn from the seed by default.")
@click.option("--secured/--open", default=None, help="Drawn from the seed by default.")
@click.option("--table/--no-table", default=True, help="Write a table, too, and judge it.")
@click.option("--folder", type=_FOLDER, help="Kept; a temporary one if not given, for failures.")
@click.option("--list", is_flag=True, expose_value=False, is_eager=True, callback=_list)
def main(
    seed: int,
    runs: int,
    minutes: float,
    faults: str,
    hosts: int,
    partitions: int | None,
    slots: int | None,
    topology: str,
    receivers: str | None,
    secured: bool | None,
    table: bool,
    folder: Path | None,
) -> None:
    """Throw seeded faults at a whole suite, and judge every line of every host.

    Ends with 0 if all runs have passed, with 1 if one has not, with 2 if none can be done here.
    """
    if _MARK not in os.environ:
        sys.exit(max(_run_apart(one, folder) for one in range(seed, seed + runs)))
    logging.disable(logging.WARNING)  # of our own connection: brokers that are away are wanted
    receivers = receivers or _RECEIVERS[seed % 3]
    secured = seed % 4 == 3 if secured is None else secured
    partitions = partitions or _PARTITIONS[seed % 2]
    slots = slots or 1 + (partitions < max(_PARTITIONS))
    shape = Shape(seed, topology, receivers, hosts, partitions, slots, secured=secured, table=table)
    try:
        drawn = chosen(faults, shape.features | machine_features())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not drawn:
        raise click.UsageError("none of these faults can strike here")
    click.echo("".join(f"not here: {why}\n" for why in missing_here()), nl=False)
    click.echo(f"seed {seed}: {shape}, {minutes:g} minutes, {len(drawn)} faults, in {folder}")
    assert folder
    result = run(folder, shape, minutes, draw(seed, drawn))
    click.echo(_summary(result))
    sys.exit(1 if result.findings else 0)


def _run_apart(seed: int, folder: Path | None) -> int:
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise click.UsageError(f"no run here: {', '.join(missing)} (util-linux and iproute2)")
    apart = ["unshare", *(_APART if os.geteuid() == 0 else (*_AS_ROOT, *_APART))]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        raise click.UsageError("no run here: it takes root, or namespaces for users")
    place = folder / str(seed) if folder else Path(tempfile.mkdtemp(prefix="chaos"))
    place.mkdir(parents=True, exist_ok=True)
    options = [*sys.argv[1:], "--seed", str(seed), "--runs", "1"]
    program = [sys.executable, "-m", "tests.chaos", *options]
    inside = [*program, "--folder", str(place)]
    done = subprocess.run(
        [*apart, "sh", "-c", _INIT, "sh", *inside], check=False, env={**os.environ, _MARK: "1"}
    )
    if done.returncode == 1:
        click.echo(f"all there is to see is in {place}; again: {shlex.join(program)}")
    elif not folder:
        shutil.rmtree(place)
    return done.returncode


def _summary(result: Result) -> str:
    document = result.as_json()
    lines = ", ".join(f"{count:,} {name}" for name, count in document["lines"].items())
    hit, missed = sum(document["faults"].values()), sum(document["not_struck"].values())
    text = (
        f"{hit} faults, {missed} had nothing to hit; lines: {lines}",
        f"lines flowed again after {max(document['waits'], default=0):.1f} s at the longest",
        *(f"FINDING: {finding}" for finding in result.findings),
        f"{'failed' if result.findings else 'passed'} after {document['seconds']:.0f} s",
    )
    return "\n".join(text)


if __name__ == "__main__":
    main()
