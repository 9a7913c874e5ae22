"""One run within namespaces of its own, as a program: `python -m tests.chaos.one FOLDER` carries out FOLDER/order.json.

It leaves result.json there, and ends with 0 if the run has passed, 1 if not, 2 if it cannot be done here.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tests.chaos import apart
from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.order import Order, choose
from tests.chaos.progress import Progress
from tests.chaos.run import run
from tests.chaos.schedule import draw
from tests.chaos.tools import machine_features, missing_here

__all__ = ["carried_out"]


class CannotRun(Exception):
    """It cannot be run here, or not so; the message was told already."""


def carried_out(order: Order, folder: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Carry out an order in a process with namespaces of its own, and return `Result.as_json`.

    `folder` must be empty or not there. Raises `CannotRun` when nothing was run, and RuntimeError when the harness failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order.write(folder / "order.json")
    words = [sys.executable, "-m", "tests.chaos.one", str(folder)]
    code = subprocess.run([*words, "--quiet"] if quiet else words, check=False).returncode
    if code == 2:
        raise CannotRun
    if code not in (0, 1) or not (folder / "result.json").exists():
        raise RuntimeError(f"the harness itself failed with {code}; see {folder}")
    found: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return found


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--quiet", is_flag=True)
def main(folder: Path, quiet: bool) -> None:
    """Carry out FOLDER/order.json."""
    try:
        apart.enter("tests.chaos.one", sys.argv[1:])
    except (PermissionError, FileNotFoundError) as error:
        click.echo(f"no run here: {error}", err=True)
        sys.exit(2)
    logging.disable(
        logging.WARNING
    )  # of our own connection: that a broker is away is what we are here for
    order = Order.read(folder / "order.json")
    features = order.shape.features | machine_features()
    all_kinds = [one.kind for one in CATALOGUE.values()]
    kinds, left_out = choose(all_kinds, order.wanted, features, order.destroy)
    if not quiet:
        limits = [f"not here: {sentence}" for sentence in missing_here()]
        limits += [f"left out, {sentence}" for sentence in left_out]
        click.echo("".join(f"{limit}\n" for limit in limits), nl=False)
    if not kinds:
        click.echo("no fault is left that could strike", err=True)
        sys.exit(2)
    strokes = draw(order.shape.seed, kinds)
    progress = Progress()

    def follow(event: Mapping[str, Any]) -> None:
        if not quiet and (line := progress.line_of(event)):
            click.echo(line)

    result = run(folder, order, strokes, follow=follow)
    (folder / "result.json").write_text(json.dumps(result.as_json()), "utf-8")
    sys.exit(0 if result.has_passed else 1)


if __name__ == "__main__":
    main()
