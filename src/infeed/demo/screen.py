"""The demo on the screen: a table that is live on a terminal, and printed once where nobody looks on."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infeed.demo.killing import Killing
from infeed.demo.measuring import Run
from infeed.demo.report import Comparison, Report
from infeed.demo.words import sentences

WIDTH = 78
BAR = 32
REDRAW = 0.2
TRAINS, WAITS, QUIET = "green", "red", "bright_black"


class Screen:
    """Shows a report; `tick` may be called as often as one likes, it draws five times a second at most."""

    def __init__(self, report: Report, console: Console | None = None):
        self.report = report
        self.console = console or Console(file=sys.stdout, highlight=False)
        self.width = min(WIDTH, self.console.width)
        self.bar_width = max(8, self.width - WIDTH + BAR)
        plain = self.console.options.ascii_only
        self.full, self.light, self.cross, self.line = ("#", ".", "X", "-") if plain else ("█", "░", "✖", "─")
        self._live: Live | None = None
        self._drawn = 0.0
        self._looked_at = self.console.file.isatty() and not self.console.is_dumb_terminal

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The table, live on a terminal, and in any case as it is at the end."""
        if not self._looked_at:
            yield
            self.console.print(self.table())
            return
        # no refreshing thread: it would take the interpreter from the threads that are measured
        with Live(self.table(), console=self.console, auto_refresh=False) as self._live:
            yield
            self._live.update(self.table(), refresh=True)
        self._live = None

    def tick(self) -> None:
        """Draw again if it is time."""
        if self._live is None or time.perf_counter() - self._drawn < REDRAW:
            return
        self._live.update(self.table(), refresh=True)
        self._drawn = time.perf_counter()

    @contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        """One line that is gone afterwards; nothing where nobody looks on."""
        if not self._looked_at:
            yield
            return
        with self.console.status(Text(what, QUIET)):
            yield

    def opening(self) -> None:
        """Where we are, and what the loop does."""
        machine = self.report.machine
        cores = f"{machine['cores']} core{'s' * (machine['cores'] != 1)}"
        where = f"{machine['infeed']} on {cores}, Python {machine['python']}, numpy {machine['numpy']}"
        self._say(
            Text.assemble("\n ", ("infeed", "bold"), f" {where}"),
            Text(" The loop trains 10 ms on each batch: asleep, as if an accelerator did the work.\n"),
        )

    def closing(self) -> None:
        """What it all means."""
        self._say(Text("\n What is gained", "bold"))
        for sentence in sentences(self.report):
            lines = textwrap.fill(sentence, self.width, initial_indent=" - ", subsequent_indent="   ")
            text = Text(lines)
            text.stylize("bold", 3, lines.find(": ") + 1)
            self._say(text)
        self._say(Text(f"   All of this took {self.report.seconds:.0f} seconds.\n", QUIET))

    def _say(self, *lines: RenderableType) -> None:
        for line in lines:
            self.console.print(line)

    # -- the table

    def table(self) -> RenderableType:
        """The whole of it as it stands."""
        legend = Text.assemble((self.full, TRAINS), " trains  ", (self.light, WAITS), " waits")
        head = self._grid()
        head.add_row("", Text("samples/s", "bold"), Text("gain", "bold"), legend, Text("waited", "bold"))
        parts: list[RenderableType] = [head, Text(" " + self.line * (self.width - 1), QUIET)]
        for comparison in self.report.comparisons:
            parts += [*self._section(comparison), ""]
        if self.report.killing is not None:
            parts += self._killing(self.report.killing)
        return Group(*parts)

    def _section(self, comparison: Comparison) -> list[RenderableType]:
        rows = self._grid()
        for run in comparison.runs:
            rows.add_row(*self._row(comparison, run))
        return [Text(f" {comparison.work.title}", "bold"), rows]

    def _row(self, comparison: Comparison, run: Run) -> list[RenderableType]:
        if not run.samples:
            return [Text(f"  {run.name}", QUIET), "", "", Text(_STATUS[run.status], QUIET), ""]
        style = "" if run.status == "done" else "yellow"
        shows_gain = run.workers > 0 and comparison.inline.status == "done"
        gain = f"{comparison.gain(run):.1f} x" if shows_gain else ""
        waited = f"{run.waiting_share * 100:.0f} %"
        return [
            Text(f"  {run.name}", style),
            Text(f"{run.rate:,.0f}", style),
            Text(gain, f"bold {style}"),
            self._bar(run.waiting_share),
            Text(waited, style),
        ]

    def _bar(self, waited: float) -> Text:
        right = round(waited * self.bar_width)
        return Text.assemble((self.full * (self.bar_width - right), TRAINS), (self.light * right, WAITS))

    def _killing(self, killing: Killing) -> list[RenderableType]:
        rows = self._grid()
        title = Text(" A worker process killed with SIGKILL in the middle of an epoch", "bold")
        if not killing.received:
            rows.add_row(Text("  stream", QUIET), "", "", Text("to come", QUIET), "")
            return [title, rows]
        same = killing.identical == killing.received
        counted = f"{killing.received} of {killing.batches}"
        verdict = "identical" if same else f"{killing.received - killing.identical} differ"
        rows.add_row(
            "  batches",
            counted,
            "",
            self._epoch(killing),
            Text(verdict, "bold " + (TRAINS if same else WAITS)),
        )
        return [title, rows]

    def _epoch(self, killing: Killing) -> Text:
        """How far the epoch has come, and where the worker died."""
        length = round(killing.received / killing.batches * self.bar_width)
        text = Text(self.full * length, TRAINS)
        if killing.after:
            place = min(length - 1, round(killing.after / killing.batches * self.bar_width))
            text = Text.assemble(
                (self.full * place, TRAINS),
                (self.cross, f"bold {WAITS}"),
                (self.full * (length - place - 1), TRAINS),
            )
        return text

    def _grid(self) -> Table:
        """Columns of the same widths for every part of the table."""
        made = Table.grid(padding=(0, 2, 0, 0))
        columns: list[tuple[int, JustifyMethod]] = [
            (14, "left"),
            (10, "right"),
            (5, "right"),
            (self.bar_width, "left"),
            (9, "right"),
        ]
        for width, justify in columns:
            made.add_column(width=width, no_wrap=True, justify=justify)
        return made


_STATUS = {"to come": "to come", "starting": "starting", "running": "starting", "done": "none came"}
