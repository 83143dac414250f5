"""All that the demo found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from infeed.demo.killing import Killing
from infeed.demo.measuring import Run
from infeed.demo.works import Work


@dataclass
class Comparison:
    """One work in every mode, the inline run first.

    >>> from infeed.demo.works import toy
    >>> inline = Run("inline", 0, samples=10, waited=1.0)
    >>> threads = Run("threads", 2, samples=15, waited=0.1, trained=0.9)
    >>> Comparison(toy(), [inline, threads]).gain(threads)
    1.5
    """

    work: Work
    runs: list[Run]

    @property
    def inline(self) -> Run:
        """What the others are compared with."""
        return self.runs[0]

    @property
    def done(self) -> bool:
        """Whether every mode has been measured."""
        return all(run.status == "done" for run in self.runs)

    @property
    def same_stream(self) -> bool:
        """Whether every mode began with the same batch, bit by bit."""
        return len({run.digest for run in self.runs}) == 1

    def gain(self, run: Run) -> float:
        """How many times the samples per second of the inline loop."""
        return run.rate / self.inline.rate if self.inline.rate else 0.0


@dataclass
class Report:
    """The comparisons, the killing where there were processes to kill, and where all this was.

    `elsewhere` is the share of the cores that other programs used meanwhile.
    """

    machine: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    killing: Killing | None = None
    seconds: float = 0.0
    elsewhere: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether every stream was what it should be; speed is no part of it."""
        same = all(comparison.same_stream for comparison in self.comparisons)
        return same and (self.killing is None or self.killing.sound)

    def as_json(self) -> str:
        """Every figure by name.

        >>> Report({"cores": 2}).as_json().splitlines()[2].strip()
        '"cores": 2'
        """
        return json.dumps(self.as_dict(), indent=2) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Every figure by name."""
        return {
            "machine": self.machine,
            "works": [_figures(comparison) for comparison in self.comparisons],
            "killing": None if self.killing is None else {**asdict(self.killing), "sound": self.killing.sound},
            "seconds": self.seconds,
            "cores_used_elsewhere": self.elsewhere,
            "sound": self.sound,
        }


def _figures(comparison: Comparison) -> dict[str, Any]:
    work = comparison.work
    return {
        "work": work.key,
        "title": work.title,
        "training_seconds_per_batch": work.training,
        "limit_samples_per_second": work.limit,
        "same_stream": comparison.same_stream,
        "runs": [
            {
                "mode": run.mode,
                "workers": run.workers,
                "samples_per_second": run.rate,
                "waiting_share": run.waiting_share,
                "times_inline": comparison.gain(run),
                "first_batch_seconds": run.first,
                "samples": run.samples,
                "batches": run.batches,
                "seconds": run.seconds,
            }
            for run in comparison.runs
        ],
    }
