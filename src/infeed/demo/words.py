"""What the figures mean, in sentences that are true whichever way they came out."""

from __future__ import annotations

from infeed.demo.killing import Killing
from infeed.demo.report import Comparison, Report

NOTICEABLE = 0.05
WORTH_SAYING = 0.1


def sentences(report: Report) -> list[str]:
    """One for each comparison, one for the stream, one for the killing."""
    told = [about(comparison) for comparison in report.comparisons]
    told.append(about_streams(report.comparisons))
    told.append(about_killing(report.killing))
    if report.elsewhere >= WORTH_SAYING:
        told.append(
            f"Other programs used {percent(report.elsewhere)} of the cores meanwhile: on an idle machine the "
            "figures will be better."
        )
    return told


def about(comparison: Comparison) -> str:
    """What workers gained in one comparison.

    >>> from infeed.demo.measuring import Run
    >>> from infeed.demo.works import toy
    >>> inline = Run("inline", 0, samples=100, waited=0.3, trained=0.6)
    >>> threads = Run("threads", 2, samples=100, waited=0.0, trained=0.6)
    >>> print(about(Comparison(toy(), [inline, threads])))
    5 ms of waiting a batch: 2 threads gave 1.5 times the samples per second of the inline loop. Inline the
    loop waited 33 % of its time, with 2 threads 0 %.
    """
    others = comparison.runs[1:]
    gains = ", ".join(
        f"{run.name} {times(comparison.gain(run), first=place == 0)}" for place, run in enumerate(others)
    )
    best = max(others, key=lambda run: run.rate)
    waited = (
        f"Inline the loop waited {percent(comparison.inline.waiting_share)} of its time, with {best.name} "
        f"{percent(best.waiting_share)}."
    )
    return f"{comparison.work.short}: {gains}. {waited}{_why(comparison)}"


def percent(share: float) -> str:
    """A share as people read it.

    >>> percent(0.333)
    '33 %'
    """
    return f"{share * 100:.0f} %"


def times(gain: float, first: bool = True) -> str:
    """A ratio to the inline loop in words.

    >>> times(1.87), times(0.8, first=False)
    ('gave 1.9 times the samples per second of the inline loop', '0.8 times')
    >>> times(1.02)
    'were as fast as the inline loop'
    """
    if not first:
        return f"{gain:.1f} times"
    if abs(gain - 1) < NOTICEABLE:
        return "were as fast as the inline loop"
    return f"gave {gain:.1f} times the samples per second of the inline loop"


def _why(comparison: Comparison) -> str:
    """Why threads stayed behind processes, where they did and pure Python is the reason."""
    rates = {run.mode: run.rate for run in comparison.runs}
    behind = rates.get("threads", 0.0) < (1 - NOTICEABLE) * rates.get("processes", 0.0)
    if not comparison.work.holds_lock or not behind:
        return ""
    return " Python runs one thread at a time, so threads only load while the loop trains."


def about_streams(comparisons: list[Comparison]) -> str:
    """Whether every mode gave the same.

    >>> about_streams([])
    'The first batches of all modes were the same, bit by bit.'
    """
    differing = [comparison.work.short for comparison in comparisons if not comparison.same_stream]
    if differing:
        return f"The modes did NOT give the same first batch, which is a bug in infeed: {', '.join(differing)}."
    return "The first batches of all modes were the same, bit by bit."


def about_killing(killing: Killing | None) -> str:
    """Whether the death of a worker changed the stream.

    >>> about_killing(None)
    'No worker was killed: worker processes need Linux.'
    """
    if killing is None:
        return "No worker was killed: worker processes need Linux."
    if not killing.deaths:
        return f"Worker {killing.pid} was sent SIGKILL and was NOT seen to die, which is a bug in infeed."
    if not killing.sound:
        return (
            f"After worker {killing.pid} was killed only {killing.identical} of {killing.batches} batches were "
            "as in the undisturbed stream, which is a bug in infeed."
        )
    return (
        f"A worker was killed after {killing.after} of {killing.batches} batches: another took its place, and "
        f"all {killing.batches} came in order, the same as undisturbed, bit by bit."
    )
