"""Shows the outcome: tables on the terminal, the same as Markdown for the docs, a picture, everything as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from benchmarks.machine import Machine
from benchmarks.memory import CASES, Footprint
from benchmarks.verdicts import Result, Spread, Verdict, times
from benchmarks.works import SECONDS, TORCH

BEGIN, END = "<!-- table:begin -->", "<!-- table:end -->"
COMPARED = {
    "torch": "2 processes / torch's 2",
    "best": "auto / best other",
    "limit": "auto / limit",
}


@dataclass(frozen=True)
class Outcome:
    """Everything a run has found."""

    machine: Machine
    rounds: int
    quick: bool
    results: list[Result]
    memory: list[Footprint]
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "date": self.date,
            "machine": asdict(self.machine),
            "rounds": self.rounds,
            "quick": self.quick,
            "works": [result.as_dict() for result in self.results],
            "memory": [one.as_dict() for one in self.memory],
        }


# -- numbers for people


def amount(value: float, unit: str) -> str:
    """A rate or a time.

    >>> amount(4_900_000, "samples/s"), amount(83_400, "samples/s"), amount(0.0065, "s")
    ('4.90 M/s', '83.4 k/s', '6.50 ms')
    """
    scales = (
        ((1.0, "s"), (1e-3, "ms"), (0.0, "us")) if unit == SECONDS else ((1e6, "M/s"), (1e3, "k/s"), (0.0, "/s"))
    )
    for scale, name in scales:
        if value >= scale:
            size = value / (scale or (1e-6 if unit == SECONDS else 1.0))
            return f"{size:.{2 if size < 10 else 1 if size < 100 else 0}f} {name}"
    raise ValueError(f"{value} is no amount")


def judged(met: bool | None) -> str:
    """Met, not met, or nothing where nothing is wanted."""
    return {True: "met", False: "not met", None: ""}[met]


def megabytes(nbytes: int) -> str:
    """A size in MB."""
    return f"{nbytes / 1e6:,.0f} MB"


# -- rows, the same for the terminal and for Markdown


def verdict_rows(results: Iterable[Result]) -> list[list[str]]:
    """One row for each comparison: what was found beside what is wanted."""
    rows = []
    for result in results:
        for place, verdict in enumerate(result.verdicts):
            rows.append([result.work.title if not place else "", *_verdict_cells(result, verdict)])
    return rows


def _verdict_cells(result: Result, verdict: Verdict) -> list[str]:
    ours, other = result.standing(verdict.ours), result.standing(verdict.other)
    assert ours is not None
    assert other is not None
    unit, ratio = result.work.unit, verdict.ratio
    return [
        COMPARED[verdict.kind],
        amount(Spread.of(ours.values).median, unit),
        f"{amount(Spread.of(other.values).median, unit)} {verdict.other}",
        f"{times(ratio.median)} ({times(ratio.low)} to {times(ratio.high)})",
        "" if verdict.wanted is None else f"{verdict.wanted:.3g}",
        judged(verdict.met),
    ]


VERDICT_HEADS = ["work", "compared", "infeed", "other", "ratio (quartiles)", "wanted", ""]


def standing_rows(results: Iterable[Result]) -> list[list[str]]:
    """One row for each contestant, the best first."""
    rows = []
    for result in results:
        unit, torch = result.work.unit, result.standing(TORCH)
        measured = [one for one in result.standings if one.values]
        measured.sort(key=lambda one: Spread.of(one.values).median, reverse=unit != SECONDS)
        for place, one in enumerate(measured):
            spread, against = Spread.of(one.values), ""
            if torch is not None:
                ratio = spread.median / Spread.of(torch.values).median
                against = times(1 / ratio if unit == SECONDS else ratio)
            between = f"{amount(spread.low, unit)} to {amount(spread.high, unit)}"
            name = f"{one.name} (limit)" if one.family == "limit" else one.name
            title = result.work.title if not place else ""
            note = one.note if one.name == "infeed, auto" else ""
            rows.append([title, name, amount(spread.median, unit), between, against, note])
    return rows


STANDING_HEADS = ["work", "contestant", "median", "quartiles", "/ torch's 2", "auto chose"]


def memory_rows(memory: Iterable[Footprint]) -> list[list[str]]:
    """One row for each contestant's memory."""
    rows, last = [], ""
    for one in memory:
        title, last = CASES[one.case] if one.case != last else "", one.case
        if one.epochs:
            growth = f"{one.growth / 1e6:+.1f} MB over {len(one.epochs)} epochs"
            allowed = "" if one.allowed is None else f"{megabytes(one.allowed)}, flat"
            cells = [megabytes(one.before), megabytes(one.peak), growth, allowed, judged(one.met)]
            rows.append([title, one.name, *cells])
    return rows


MEMORY_HEADS = ["work", "contestant", "data alone", "with loader, peak", "growth", "wanted at most", ""]


# -- the terminal


def line(result: Result, seconds: float) -> str:
    """One line as soon as a work is done."""
    found = ", ".join(
        f"{COMPARED[verdict.kind]} {times(verdict.ratio.median)}"
        + (f" (wanted {verdict.wanted:.3g})" if verdict.wanted else "")
        for verdict in result.verdicts
    )
    return f"[bold]{result.work.name}[/]: {found} [dim]{seconds:.0f} s[/]"


def tables(outcome: Outcome) -> list[Table]:
    """What there is to show."""
    made = []
    if outcome.results:
        made.append(_table("All contestants", STANDING_HEADS, standing_rows(outcome.results)))
        made.append(_table("Wanted and found", VERDICT_HEADS, verdict_rows(outcome.results)))
    if outcome.memory:
        made.append(_table("Memory of the process tree (PSS)", MEMORY_HEADS, memory_rows(outcome.memory)))
    return made


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, overflow="fold")
    first = True
    for row in rows:
        if row[0] and not first:
            table.add_section()
        first = False
        table.add_row(*row[:-1], _coloured(row[-1]))
    return table


def _coloured(cell: str) -> str:
    colour = {"met": "green", "not met": "bold red"}.get(cell)
    return f"[{colour}]{cell}[/]" if colour else cell


def remarks(outcome: Outcome) -> list[str]:
    """What a reader should know about these figures."""
    said = []
    for result in outcome.results:
        said += [_failure(result.work.name, one.name, one.error) for one in result.failed]
        if result.noisy and outcome.rounds > 1:
            said.append(
                f"[yellow]noisy:[/] {result.work.name}: {', '.join(result.noisy)}: quartiles over 25 % apart"
            )
    said += [_failure(one.case, one.name, one.error) for one in outcome.memory if one.error]
    if outcome.quick:
        said.append("[yellow]--quick: the sizes are tiny, so the figures mean nothing[/]")
    return said


def _failure(work: str, name: str, error: str) -> str:
    return f"[bold red]failed:[/] {work}: {name}: {escape(error)}"


# -- the docs


def markdown(outcome: Outcome) -> str:
    """The tables for docs/benchmarks.md."""
    parts = [
        f"Measured on {outcome.date}, {outcome.rounds} rounds:",
        "\n".join(f"- {text}" for text in str(outcome.machine).splitlines()),
    ]
    if outcome.results:
        parts += [
            "![Ratios and shares of the limit](benchmarks.png)",
            "### Wanted and found",
            _markdown_table(VERDICT_HEADS, verdict_rows(outcome.results)),
            "### All contestants",
            _markdown_table(STANDING_HEADS, standing_rows(outcome.results)),
        ]
    if outcome.memory:
        parts += ["### Memory", _markdown_table(MEMORY_HEADS, memory_rows(outcome.memory))]
    return "\n\n".join(parts)


def _markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("__", r"\_\_") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def between_markers(text: str, content: str) -> str:
    """`text` with what stands between the two markers replaced.

    >>> between_markers(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\\n\\nnew\\n\\n{END} b"
    True
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no {BEGIN} ... {END} to put the tables between")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def write_docs(outcome: Outcome, file: Path) -> None:
    """Put the tables into the page."""
    file.write_text(between_markers(file.read_text(), markdown(outcome)))


# -- the picture


def picture(outcome: Outcome, file: Path) -> None:
    """Ratio bars against what is wanted, and beside them the share of the limit."""
    from benchmarks.drawing import draw

    draw(outcome, file)
