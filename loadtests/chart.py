"""Charts for the documents, drawn with matplotlib.

Knows: matplotlib.
Must not know: how the numbers came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from loadtests.table import Row

REACHED, MISSED, NEUTRAL = "#2a7f62", "#b3402e", "#7a8794"


def draw_ratios(rows: Sequence[Row], path: Path) -> None:
    """Draw each row's ratio as a bar with its spread, and a mark where the asked ratio lies."""
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(rows) + 1.2))
    places = range(len(rows))
    colors = [{True: REACHED, False: MISSED, None: NEUTRAL}[row.reached] for row in rows]
    errors = [[row.median - row.least for row in rows], [row.most - row.median for row in rows]]
    axes.barh(places, [row.median for row in rows], xerr=errors, color=colors, height=0.6, error_kw={"lw": 1})
    for place, row in enumerate(rows):
        if row.asked is not None:
            axes.plot([row.asked, row.asked], [place - 0.42, place + 0.42], color="black", lw=2)
    axes.set_yticks(places, [row.what for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ratio (bar: median, thin line: spread, black mark: asked)", fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_growth(panels: Mapping[str, tuple[Sequence[float], Mapping[str, Sequence[float]]]], path: Path) -> None:
    """Draw one panel for each thing that grows: its values on a logarithmic axis, and what they cost."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False)
    for each, (title, (sizes, series)) in zip(axes[0], panels.items(), strict=True):
        for name, values in series.items():
            each.plot(sizes, values, marker="o", label=name)
        each.set_xscale("log")
        each.set_ylim(bottom=0)
        each.set_title(title, fontsize=9)
        each.grid(alpha=0.3)
        each.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
