"""Draw results: a panel for each figure, and in it a dot for each system in each case."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bench.result import Record
from bench.resulttext import number

_WIDTH = 0.8  # of a case, where 1 is from one to the next
_INCHES = (6.0, 3.6)  # of a panel
_MANY, _UPRIGHT = 6, 2.0  # cases; their names are upright, and take so many inches more
_FAR_APART = 20  # times
_SPREAD = 3  # runs; of fewer the least and the most say little
_NOTHING = "0.6"  # grey
_BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7}


def draw(record: Record, path: Path) -> None:
    """Draw a record as PNG: medians, and whiskers from least to most of three runs or more.

    A system without a result has no dot.
    """
    panels, (width, height) = len(record.compared), _INCHES
    height += _UPRIGHT if len({result.case for result in record.results}) > _MANY else 0
    figure = Figure(figsize=(width * panels, height), layout="constrained")
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
            (cases.index(result.case) + (place + 0.5) * width - _WIDTH / 2, spread, result.runs)
            for result in record.results
            if result.system == system and not result.void and (spread := result.spread(name))
        ]
        axes.plot(
            [at for at, _, _ in shown],
            [spread.median for _, spread, _ in shown],
            "o",
            label=system if shown else f"{system} (no result)",
            color=f"C{place % 10}" if shown else _NOTHING,
        )
        for at, spread, runs in shown:
            axes.annotate(number(spread.median), (at, spread.median), (4, 4), **_BESIDE)
            if len(runs) >= _SPREAD:
                axes.vlines(at, spread.least, spread.most, color=f"C{place % 10}")
    if _far_apart(record, name):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(cases)), cases, rotation=90 if len(cases) > _MANY else 0)
    axes.set_xlim(-0.5, len(cases) - 0.5)
    axes.grid(axis="y", alpha=0.3)
    better = "more" if name.endswith("/s") else "less"
    axes.set_title(f"{name} ({better} is better)")


def _far_apart(record: Record, name: str) -> bool:
    """Whether a plain scale would hide the least beside the most; never if there are zeros."""
    spreads = [result.spread(name) for result in record.results if not result.void]
    medians = [spread.median for spread in spreads if spread]
    return bool(medians) and 0 < min(medians) < max(medians) / _FAR_APART
