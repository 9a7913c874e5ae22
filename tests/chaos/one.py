"""One run within namespaces of its own, as a program: `python -m tests.chaos.one FOLDER` carries out FOLDER/order.json.

Whatever happens there, the kernel leaves nothing of its processes, mounts and networks. It leaves result.json, and ends with 0 if the run has passed, 1 if not, 2 if it cannot be done here.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.order import Order, choose
from tests.chaos.run import run
from tests.chaos.runlog import Progress
from tests.chaos.schedule import draw
from tests.chaos.tools import machine_features, missing_here

__all__ = ["CannotRun", "carried_out", "enter"]

_MARK = "LOGSHIP_CHAOS_APART"
_APART = ("--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
_AS_ROOT = ("--user", "--map-root-user")
_TOOLS = ("unshare", "nsenter", "mount", "ip")
_INIT = '"$@"; exit $?'  # the first process of a namespace inherits orphans, and a shell reaps them


class CannotRun(Exception):
    """It cannot be run here, or not so; the message was told already."""


def carried_out(order: Order, folder: Path) -> dict[str, Any]:
    """Carry out an order in a process with namespaces of its own, and return `Result.as_json`.

    `folder` must be empty or not there. Raises `CannotRun` when nothing was run, and RuntimeError when the harness failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order.write(folder / "order.json")
    program = [sys.executable, "-m", "tests.chaos.one", str(folder)]
    code = subprocess.run(program, check=False).returncode
    if code == 2:
        raise CannotRun
    if code not in (0, 1) or not (folder / "result.json").exists():
        raise RuntimeError(f"the harness itself failed with {code}; see {folder}")
    found: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return found


def enter(module: str, arguments: Sequence[str]) -> None:
    """Go on as `python -m module arguments` within namespaces; returns when we are within them.

    Raises `PermissionError` where this machine does not let us have any, `FileNotFoundError` where it lacks the tools.
    """
    if _MARK in os.environ:
        return
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise FileNotFoundError(f"{', '.join(missing)}: not on PATH (util-linux and iproute2)")
    options = _APART if os.geteuid() == 0 else (*_AS_ROOT, *_APART)
    if subprocess.run(["unshare", *options, "true"], check=False, capture_output=True).returncode:
        raise PermissionError(
            "namespaces of its own take root, or a kernel that lets users have them"
        )
    os.environ[_MARK] = "1"
    words = ("sh", "-c", _INIT, "sh", sys.executable, "-m", module, *arguments)
    os.execvp("unshare", ["unshare", *options, *words])


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
def main(folder: Path) -> None:
    """Carry out FOLDER/order.json."""
    try:
        enter("tests.chaos.one", sys.argv[1:])
    except (PermissionError, FileNotFoundError) as error:
        click.echo(f"no run here: {error}", err=True)
        sys.exit(2)
    # of our own connection: that a broker is away is what we are here for
    logging.disable(logging.WARNING)
    order = Order.read(folder / "order.json")
    features = order.shape.features | machine_features()
    kinds, left_out = choose(list(CATALOGUE.values()), order.wanted, features, order.destroy)
    limits = [f"not here: {sentence}" for sentence in missing_here()]
    limits += [f"left out, {sentence}" for sentence in left_out]
    click.echo("".join(f"{limit}\n" for limit in limits), nl=False)
    if not kinds:
        click.echo("no fault is left that could strike", err=True)
        sys.exit(2)
    strokes = draw(order.shape.seed, kinds)
    result = run(folder, order, strokes, follow=_follower())
    (folder / "result.json").write_text(json.dumps(result.as_json()), "utf-8")
    sys.exit(0 if result.has_passed else 1)


def _follower() -> Callable[[Mapping[str, Any]], None]:
    """Return what tells a person of events."""
    progress = Progress()

    def follow(event: Mapping[str, Any]) -> None:
        if line := progress.line_of(event):
            click.echo(line)

    return follow


if __name__ == "__main__":
    main()
