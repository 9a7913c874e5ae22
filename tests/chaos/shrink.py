"""Shrinks the schedule of a run that failed, by running shorter ones: `python -m tests.chaos.shrink FOLDER`.

Timing decides whether a schedule fails, so that each candidate gets several tries; one that fails as the run did, by the kind of
its findings, is kept.
"""

import json
import shlex
import shutil
import sys
from pathlib import Path

import click

from tests.chaos.one import CannotRun, carried_out
from tests.chaos.order import Order
from tests.chaos.schedule import Stroke
from tests.chaos.shrinking import same_failure, shrink

__all__ = ["shrink_folder"]


class Shrinker:
    """Runs candidates in `folder`, each up to `tries` times; what failed last stays in `folder/shortest`."""

    def __init__(self, order: Order, findings: list[str], folder: Path, tries: int) -> None:
        self.order = order
        self.findings = findings
        self.folder = folder
        self.tries = tries
        self.runs = 0

    def shortest(self) -> list[Stroke]:
        """Return the shortest schedule that still fails, which may be the one that it began with."""
        return shrink(self.order.strokes or (), self._fails)

    def _fails(self, strokes: list[Stroke]) -> bool:
        faults = sum(len(stroke.faults) for stroke in strokes)
        for number in range(1, self.tries + 1):
            self.runs += 1
            folder = self.folder / f"try-{self.runs}"
            result = carried_out(self.order.with_strokes(strokes), folder, quiet=True)
            fails = same_failure(self.findings, result["findings"])
            verdict = "fails" if fails else "fails otherwise" if result["findings"] else "passes"
            click.echo(f"{len(strokes)} strokes, {faults} faults, try {number}: {verdict}")
            if fails:
                kept = self.folder / "shortest"
                shutil.rmtree(kept, ignore_errors=True)
                folder.rename(kept)
                return True
            shutil.rmtree(folder)
        return False


def shrink_folder(folder: Path, tries: int) -> None:
    """Shrink what failed in a run's folder, and tell how to run the rest again."""
    order = Order.read(folder / "schedule.json")
    findings = json.loads((folder / "result.json").read_text("utf-8"))["findings"]
    shrinker = Shrinker(order, findings, folder / "shrunk", tries)
    strokes = shrinker.shortest()
    path = folder / "shortest.json"
    order.with_strokes(strokes).write(path)
    again = [sys.executable, "-m", "tests.chaos", "--schedule", str(path)]
    faults = ", ".join(fault.kind for stroke in strokes for fault in stroke.faults)
    click.echo(
        f"the shortest after {shrinker.runs} runs has {len(strokes)} strokes ({faults}); "
        f"again: {shlex.join(again)}"
    )


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--tries", type=click.IntRange(min=1), default=3, show_default=True)
def main(folder: Path, tries: int) -> None:
    """Shrink the schedule of the failed run that left FOLDER; each candidate gets so many TRIES."""
    try:
        shrink_folder(folder, tries)
    except (FileNotFoundError, ValueError) as error:
        raise click.UsageError(f"{folder} is none that a failed run has left: {error}") from None
    except CannotRun:
        sys.exit(2)


if __name__ == "__main__":
    main()
