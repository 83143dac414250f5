"""From the values of all rounds to medians, ratios, and met or not met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.rounds import Standing
from benchmarks.works import AUTO, OURS, SECONDS, TORCH, Work


@dataclass(frozen=True)
class Spread:
    """A median, and the quartiles around it.

    >>> Spread.of([1, 2, 3, 4, 5])
    Spread(median=3, low=2.0, high=4.0)
    """

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of some values; with fewer than three, the quartiles are the smallest and the largest."""
        if len(values) < 3:
            return Spread(statistics.median(values), min(values), max(values))
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(statistics.median(values), low, high)

    @property
    def width(self) -> float:
        """How far the quartiles are apart, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Verdict:
    """One comparison: how many times better `ours` is than `other`, round by round."""

    kind: str  # torch, best or limit
    ours: str
    other: str
    ratio: Spread
    wanted: float | None

    @property
    def met(self) -> bool | None:
        """Whether the median is at least what is wanted; None where nothing is."""
        return None if self.wanted is None else self.ratio.median >= self.wanted


@dataclass
class Result:
    """A work, everyone's values, and what follows from them."""

    work: Work
    standings: list[Standing]

    def standing(self, name: str) -> Standing | None:
        """Of one contestant, if it has finished any turn."""
        return next((one for one in self.standings if one.name == name and one.values), None)

    @property
    def best_other(self) -> Standing | None:
        """The best of all loaders that are not ours, a plain loop among them."""
        others = [one for one in self.standings if one.values and one.family not in ("infeed", "limit")]
        sign = -1 if self.work.unit == SECONDS else 1
        return max(others, key=lambda one: sign * statistics.median(one.values), default=None)

    @property
    def verdicts(self) -> list[Verdict]:
        """Two processes against torch's two, always; the others where something is wanted of them."""
        work, best = self.work, self.best_other
        pairs = [
            ("torch", OURS, self.standing(TORCH), work.wanted.torch),
            ("best", AUTO, best, work.wanted.best),
            ("limit", AUTO, self.standing(work.limit or ""), work.wanted.limit),
        ]
        made = []
        for kind, name, other, wanted in pairs:
            ours = self.standing(name)
            if ours is not None and other is not None and (wanted is not None or kind == "torch"):
                made.append(Verdict(kind, name, other.name, self._ratio(ours, other), wanted))
        return made

    def _ratio(self, ours: Standing, other: Standing) -> Spread:
        """Both were measured in every round, so that what disturbs a whole round disturbs no ratio."""
        pairs = zip(ours.values, other.values, strict=False)
        if self.work.unit == SECONDS:
            return Spread.of([theirs / mine for mine, theirs in pairs])
        return Spread.of([mine / theirs for mine, theirs in pairs])

    @property
    def noisy(self) -> list[str]:
        """Contestants whose quartiles lie far apart."""
        return [one.name for one in self.standings if one.values and Spread.of(one.values).width > 0.25]

    @property
    def failed(self) -> list[Standing]:
        """Contestants that could not take part."""
        return [one for one in self.standings if one.error]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "name": self.work.name,
            "title": self.work.title,
            "unit": self.work.unit,
            "wanted": asdict(self.work.wanted),
            "contestants": [asdict(one) for one in self.standings],
            "verdicts": [{**asdict(verdict), "met": verdict.met} for verdict in self.verdicts],
        }


def times(value: float) -> str:
    """A ratio, with as many digits as it deserves.

    >>> times(0.954), times(14.26), times(134.9)
    ('0.95', '14.3', '135')
    """
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
