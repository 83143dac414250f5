"""The order of events in the demo."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass

import numpy as np
import psutil

import infeed
from infeed import cores
from infeed.demo import works
from infeed.demo.killing import Killing, kill
from infeed.demo.measuring import Mode, Run, measure
from infeed.demo.report import Comparison, Report
from infeed.demo.screen import Screen
from infeed.slots import free_memory


@dataclass(frozen=True)
class Settings:
    """How much of everything.

    >>> Settings.of(quick=True, workers=3).workers
    3
    """

    workers: int
    seconds: float = 2.0
    warm_up: float = 0.5
    images: int = 10_000
    kill_samples: int = 1024

    @staticmethod
    def of(*, quick: bool = False, workers: int | None = None) -> Settings:
        """The usual run, or one of a few seconds."""
        count = min(4, max(2, cores.available())) if workers is None else workers
        if quick:
            return Settings(count, seconds=0.15, warm_up=0.05, images=1000, kill_samples=320)
        return Settings(count)


def run(settings: Settings) -> Report:
    """All of it, shown on standard output; returns what was found."""
    began, busy = time.perf_counter(), busy_elsewhere()
    report = Report(machine())
    screen = Screen(report)
    screen.opening()
    count = works.image_count(settings.images, free_memory())
    processes = hasattr(os, "memfd_create")
    with screen.preparing(f"making {count:,} images"):
        slow = works.slow_items(settings.kill_samples)
        all_works = (works.images(count, shared=processes), slow, works.toy())
    for work in all_works:
        report.comparisons.append(Comparison(work, modes(settings.workers, processes=processes)))
    report.killing = Killing(len(slow.pipeline)) if processes else None
    with screen.shown():
        for comparison in report.comparisons:
            for one in comparison.runs:
                measure(one, comparison.work, settings.seconds, settings.warm_up, screen.tick)
        if report.killing is not None:
            kill(report.killing, slow.pipeline, settings.workers, screen.tick)
    report.seconds = time.perf_counter() - began
    # capacity is counted as the system does, over all its cores, not only those we may use
    report.elsewhere = max(0.0, busy_elsewhere() - busy) / report.seconds / (os.cpu_count() or 1)
    screen.closing()
    return report


def modes(workers: int, *, processes: bool = True) -> list[Run]:
    """What is compared, the inline loop first.

    >>> [run.name for run in modes(2)]
    ['inline', '2 threads', '2 processes']
    """
    names: list[Mode] = ["threads", "processes"] if processes else ["threads"]
    return [Run("inline", 0), *(Run(name, workers) for name in names)]


def busy_elsewhere() -> float:
    """Seconds of processor time that programs other than this one have used, or that a host has withheld.

    >>> busy_elsewhere() >= 0
    True
    """
    spent = psutil.cpu_times()
    idle = spent.idle + getattr(spent, "iowait", 0.0)
    twice = getattr(spent, "guest", 0.0) + getattr(spent, "guest_nice", 0.0)  # counted as user time as well
    return float(sum(spent) - idle - twice - sum(psutil.Process().cpu_times()[:4]))


def machine() -> dict[str, object]:
    """Where the figures come from.

    >>> machine()["cores"] >= 1
    True
    """
    return {
        "infeed": infeed.__version__,
        "cores": cores.available(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.system(),
    }
