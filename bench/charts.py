"""Results as pictures: a panel for each figure by which systems are compared, a group of bars for each case."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.result import Record

_WIDTH = 0.8  # of a group, where 1 is from one to the next
_INCHES = (6.0, 3.6)  # of a panel
_FAR_APART = 20  # times


def draw(record: Record, path: Path) -> None:
    """Draw a record as PNG: medians, and from the least to the most of all runs; what has no result has no bar."""
    panels = len(record.compared)
    figure = Figure(figsize=(_INCHES[0] * panels, _INCHES[1]), layout="constrained")
    axes = [figure.add_subplot(1, panels, place + 1) for place in range(panels)]
    for name, panel in zip(record.compared, axes, strict=True):
        _panel(record, name, panel)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(f"{record.command}: {record.machine}, {record.date[:10]}")
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _panel(record: Record, name: str, axes: Axes) -> None:
    cases = list(dict.fromkeys(result.case for result in record.results))
    systems = list(dict.fromkeys(result.system for result in record.results))
    width = _WIDTH / len(systems)
    for place, system in enumerate(systems):
        shown = [
            (cases.index(result.case) + (place + 0.5) * width - _WIDTH / 2, spread)
            for result in record.results
            if result.system == system and not result.void and (spread := result.spread(name))
        ]
        middles = [spread.median for _, spread in shown]
        errors = [
            [spread.median - spread.least for _, spread in shown],
            [spread.most - spread.median for _, spread in shown],
        ]
        places = [at for at, _ in shown]
        label = system if shown else f"{system} (no result)"
        axes.bar(
            places, middles, width, yerr=errors, label=label, capsize=2, color=f"C{place % 10}"
        )
    if _far_apart(record, name):
        axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), cases)
    axes.set_title(name)


def _far_apart(record: Record, name: str) -> bool:
    """Whether the least cannot be made out beside the most on a plain scale; where there are zeros, no other shows them."""
    spreads = [result.spread(name) for result in record.results if not result.void]
    medians = [spread.median for spread in spreads if spread]
    return bool(medians) and 0 < min(medians) < max(medians) / _FAR_APART
