"""`python -m benchmarks.run`: infeed beside other loaders, in interleaved rounds on two cores."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.data import QUICK, Sizes
from benchmarks.machine import ROOT, Machine, keep_to
from benchmarks.memory import CASES, Footprint, footprints
from benchmarks.rounds import compete
from benchmarks.verdicts import Result
from benchmarks.works import WORKERS, WORKS, Work

DOCS = ROOT / "docs"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What the user asks for."""
    names = [*(work.name for work in WORKS), *CASES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, one round: only to see that all of it runs"
    )
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--rounds", type=int, help="how often everyone has a turn (7)")
    parser.add_argument("--seconds", type=float, help="how long a turn is timed at least (0.3)")
    parser.add_argument("--cores", type=int, default=WORKERS, help="how many cores may be used (2)")
    families = ("torch", "BatchUp", "loop")
    parser.add_argument("--skip", action="append", choices=families, default=[], help="leave these out; repeatable")
    parser.add_argument("--modes", action="store_true", help="infeed also inline and with two threads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all values (build/benchmarks.json)")
    parser.add_argument("--png", type=Path, metavar="FILE", help="the picture (build/benchmarks.png)")
    parser.add_argument("--write-docs", action="store_true", help="put tables and picture into docs/")
    chosen = parser.parse_args(given)
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds takes a number of at least 1")
    if chosen.write_docs and (chosen.quick or chosen.only or chosen.skip):
        parser.error("--write-docs is for a whole run: leave out --quick, --only and --skip")
    return chosen


def sizes_of(chosen: argparse.Namespace) -> Sizes:
    """The sizes of the works, as asked for."""
    sizes = QUICK if chosen.quick else Sizes()
    return sizes if chosen.seconds is None else replace(sizes, seconds=chosen.seconds)


def do_work(work: Work, sizes: Sizes, rounds: int, chosen: argparse.Namespace, console: Console) -> Result:
    """Make the dataset, let all contestants compete, and say how it went."""
    began = time.perf_counter()
    contestants = [one for one in work.contestants(sizes, chosen.modes) if one.family not in chosen.skip]

    def tell(text: str) -> None:
        if console.is_terminal:
            console.print(f"[dim]{work.name}: {text:60}[/]", end="\r", highlight=False)

    result = Result(work, compete(contestants, rounds, tell, quiet=0.0 if chosen.quick else 5.0))
    console.print(report.line(result, time.perf_counter() - began), highlight=False)
    return result


def main(given: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when infeed itself could not take part somewhere."""
    chosen = arguments(given)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    machine = Machine.here(keep_to(chosen.cores))
    console.print(str(machine), highlight=False)
    if machine.warning:
        console.print(f"[bold yellow]warning:[/] {machine.warning}", highlight=False)
    if "torch" not in chosen.skip:
        import torch  # noqa: F401  (once, here, and not in every contestant's process)

    sizes, wanted = sizes_of(chosen), chosen.only or [*(work.name for work in WORKS), *CASES]
    rounds = chosen.rounds or (1 if chosen.quick else 7)
    results = [do_work(work, sizes, rounds, chosen, console) for work in WORKS if work.name in wanted]
    memory: list[Footprint] = []
    for case in CASES:
        if case in wanted:
            console.print(f"[bold]{case}[/]: {CASES[case]}", highlight=False)
            memory += footprints(case, sizes)
    outcome = report.Outcome(machine, rounds, chosen.quick, results, memory)
    for table in report.tables(outcome):
        console.print(table)
    for text in report.remarks(outcome):
        console.print(text, highlight=False)
    keep(outcome, chosen, console)
    ours = [one for result in results for one in result.failed if one.family == "infeed"]
    return 1 if ours or any(one.error for one in memory if one.name.startswith("infeed")) else 0


def keep(outcome: report.Outcome, chosen: argparse.Namespace, console: Console) -> None:
    """Write JSON, picture and docs."""
    json_file = chosen.json or ROOT / "build" / "benchmarks.json"
    png_file = chosen.png or ROOT / "build" / "benchmarks.png"
    for file in (json_file, png_file):
        file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_text(json.dumps(outcome.as_dict(), indent=1) + "\n")
    written = [json_file]
    if outcome.results:
        report.picture(outcome, png_file)
        written.append(png_file)
    if chosen.write_docs:
        report.write_docs(outcome, DOCS / "benchmarks.md")
        written.append(DOCS / "benchmarks.md")
        if outcome.results:
            report.picture(outcome, DOCS / "benchmarks.png")
            written.append(DOCS / "benchmarks.png")
    console.print("written: " + ", ".join(map(str, written)), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
