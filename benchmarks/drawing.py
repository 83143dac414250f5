"""The picture: how many times faster, against what is wanted, and the share of the limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.verdicts import times

if TYPE_CHECKING:
    from benchmarks.report import Outcome
    from benchmarks.verdicts import Verdict

COLOURS = {"torch": "#0072B2", "best": "#E69F00", "limit": "#009E73"}
LABELS = {
    "torch": "2 processes, against torch's 2 workers",
    "best": "auto, against the best other loader",
    "limit": "auto, as a share of the limit",
}
INK, PALE = "#222222", "#dddddd"
BAR = 0.36


def draw(outcome: Outcome, file: Path) -> None:
    """Draw what was found and save it."""
    works = [result for result in outcome.results if result.verdicts]
    limited = any(verdict.kind == "limit" for result in works for verdict in result.verdicts)
    height = 1.9 + 0.62 * len(works)
    figure, axes = plt.subplots(
        1, 2 if limited else 1, figsize=(12 if limited else 9, height), width_ratios=(5, 2.3) if limited else (1,),
        sharey=True, squeeze=False, layout="constrained",
    )  # fmt: skip
    try:
        ratios = axes[0][0]
        _frame(ratios, [result.work.title for result in works])
        for place, result in enumerate(works):
            shown = [verdict for verdict in result.verdicts if verdict.kind != "limit"]
            for number, verdict in enumerate(shown):
                offset = (number - (len(shown) - 1) / 2) * (BAR + 0.04)
                _bar(ratios, place + offset, verdict, base=1.0)
        _logarithmic(ratios, [verdict for result in works for verdict in result.verdicts])
        if limited:
            shares = axes[0][1]
            _frame(shares, None)
            for place, result in enumerate(works):
                for verdict in result.verdicts:
                    if verdict.kind == "limit":
                        _bar(shares, place, verdict, base=0.0)
            shares.set_xlim(0, 2.1)
            shares.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
            shares.axvline(1, color=INK, linewidth=0.8)
            shares.set_xlabel("share of the limit")
        _texts(figure, outcome)
        figure.savefig(file, dpi=150)
    finally:
        plt.close(figure)


def _frame(axis: Any, titles: list[str] | None) -> None:
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_axisbelow(True)
    axis.grid(axis="x", color=PALE, linewidth=0.7)
    if titles is not None:
        axis.set_yticks(range(len(titles)), titles)
        axis.set_ylim(len(titles) - 0.45, -0.55)


def _bar(axis: Any, place: float, verdict: Verdict, base: float) -> None:
    """One bar from `base`, pale where the wanted line is not reached, with quartiles, wanted line and number."""
    ratio = verdict.ratio
    faint = verdict.met is False
    axis.barh(
        place, ratio.median - base, BAR, left=base, color=COLOURS[verdict.kind], alpha=0.45 if faint else 1.0,
        hatch="////" if faint else None, edgecolor="white", linewidth=0,
    )  # fmt: skip
    axis.plot([ratio.low, ratio.high], [place, place], color=INK, linewidth=1.2, solid_capstyle="butt")
    end = max(ratio.high, ratio.median, base)
    if verdict.wanted is not None:
        half = BAR / 2 + 0.03
        axis.plot([verdict.wanted] * 2, [place - half, place + half], color=INK, linewidth=2.2)
        if ratio.median < verdict.wanted:
            end = max(end, verdict.wanted)
    found = times(ratio.median)
    axis.annotate(
        found if verdict.wanted is None else f"{found}, wanted {verdict.wanted:.3g}", (end, place), xytext=(5, 0),
        textcoords="offset points", va="center", fontsize=9, color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )  # fmt: skip


def _logarithmic(axis: Any, verdicts: list[Verdict]) -> None:
    ratios = [verdict for verdict in verdicts if verdict.kind != "limit"]
    ends = [value for one in ratios for value in (one.ratio.median, one.ratio.low, one.ratio.high, one.wanted or 1)]
    axis.set_xscale("log")
    axis.set_xlim(min(0.7, *ends, 1) * 0.9, max(10, *ends) * 3.2)
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
    low, high = axis.get_xlim()
    inside = [tick for tick in ticks if low <= tick <= high]
    axis.set_xticks(inside, [f"{tick:g}" for tick in inside])
    axis.minorticks_off()
    axis.axvline(1, color=INK, linewidth=0.8)
    axis.set_xlabel("times better than the other (samples per second, or seconds)")


def _texts(figure: Any, outcome: Outcome) -> None:
    kinds = {verdict.kind for result in outcome.results for verdict in result.verdicts}
    keys: list[Any] = [Patch(color=COLOURS[kind], label=text) for kind, text in LABELS.items() if kind in kinds]
    keys.append(
        Line2D([], [], color=INK, linewidth=2.2, marker="|", linestyle="none", markersize=11, label="wanted")
    )
    keys.append(Patch(facecolor="#999999", alpha=0.45, hatch="////", edgecolor="white", label="not met"))
    figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), frameon=False, fontsize=9)
    machine = outcome.machine
    how = f"medians of {outcome.rounds} rounds, thin lines: quartiles"
    if outcome.quick:
        how = "quick run: the figures mean nothing"
    versions = f"numpy {machine.versions['numpy']}, torch {machine.versions['torch']}"
    figure.supxlabel(
        f"{machine.processor}, {machine.cores} cores, Python {machine.python}, {versions}, "
        f"commit {machine.commit}, {outcome.date}; {how}",
        fontsize=8, color="#555555",
    )  # fmt: skip
