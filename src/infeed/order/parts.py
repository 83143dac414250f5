"""Parts of a dataset: train and test by fractions, and the folds of a cross-validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from numbers import Integral

import numpy as np

from infeed.errors import PipelineError
from infeed.order.counts import as_count
from infeed.order.order import IntArray
from infeed.order.shuffled import Shuffled


@dataclass(frozen=True)
class Part:
    """The positions `start` to `stop` of `of` samples, in their own order or in a shuffled one.

    The shuffle is that of epoch 0 in every epoch: a sample never moves from one part to another.

    >>> Part(3, 5, of=5).at(np.arange(2), 5, epoch=9).tolist()
    [3, 4]
    """

    start: int
    stop: int
    of: int
    shuffle: Shuffled | None = None

    def size(self, n: int) -> int:
        """The samples of this part."""
        _check_of(self.of, n)
        return self.stop - self.start

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The same samples in every epoch."""
        places = positions + self.start
        return places if self.shuffle is None else self.shuffle.at(places, n, epoch=0)


@dataclass(frozen=True)
class Rest:
    """All of `of` samples but the part `start` to `stop`: what a fold trains on.

    >>> Rest(1, 3, of=5).at(np.arange(3), 5, epoch=9).tolist()
    [0, 3, 4]
    """

    start: int
    stop: int
    of: int
    shuffle: Shuffled | None = None

    def size(self, n: int) -> int:
        """The samples outside the part."""
        _check_of(self.of, n)
        return n - (self.stop - self.start)

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The same samples in every epoch."""
        places = np.where(positions < self.start, positions, positions + (self.stop - self.start))
        return places if self.shuffle is None else self.shuffle.at(places, n, epoch=0)


def _check_of(of: int, n: int) -> None:
    if of != n:
        raise PipelineError(
            f"this part was cut from {of} samples and is used on {n}. Split the dataset you use it on."
        )


def split_parts(n: int, sizes: Sequence[float], seed: int | None = None) -> list[Part]:
    """Disjoint parts that together are all `n` samples.

    `sizes` are fractions that sum to 1, or counts (all integers) that sum to `n`. Fractions that do not come
    out even are rounded by the largest remainder. `seed=None` cuts contiguous parts; a seed shuffles first.

    >>> [part.size(10) for part in split_parts(10, [0.75, 0.25], seed=7)]
    [8, 2]
    >>> split_parts(10, [7, 3])
    [Part(start=0, stop=7, of=10, shuffle=None), Part(start=7, stop=10, of=10, shuffle=None)]
    """
    shuffle = None if seed is None else Shuffled(seed)
    ends = [0, *accumulate(_counts(n, sizes))]
    return [Part(start, stop, n, shuffle) for start, stop in pairwise(ends)]


def _counts(n: int, sizes: Sequence[float]) -> list[int]:
    if not sizes or any(isinstance(size, bool) or not size >= 0 for size in sizes):
        raise PipelineError(f"cannot split by {list(sizes)}. Give fractions (0.8, 0.2) or counts (800, 200).")
    if all(isinstance(size, Integral) for size in sizes):
        if sum(sizes) != n:
            raise PipelineError(f"the parts {list(sizes)} sum to {sum(sizes)}, but there are {n} samples.")
        return [int(size) for size in sizes]
    if any(isinstance(size, Integral) for size in sizes):
        raise PipelineError(f"{list(sizes)} mixes fractions and counts. Give all parts as one or the other.")
    if not math.isclose(math.fsum(sizes), 1, rel_tol=1e-9):
        raise PipelineError(
            f"the fractions {list(sizes)} sum to {math.fsum(sizes)}, not to 1. To leave samples out, "
            "take one more part and do not use it."
        )
    return _by_largest_remainder(n, sizes)


def _by_largest_remainder(n: int, sizes: Sequence[float]) -> list[int]:
    """Exact arithmetic on the decimals as typed, because 0.7 * 10 is less than 7 in doubles."""
    typed = [Fraction(repr(float(size))) for size in sizes]
    exact = [share * n / sum(typed) for share in typed]
    counts = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda part: counts[part] - exact[part])
    for part in by_remainder[: n - sum(counts)]:
        counts[part] += 1
    return counts


def fold_parts(n: int, k: int, seed: int | None = None) -> list[tuple[Rest, Part]]:
    """`k` pairs of (train, validation): each sample is in exactly one validation part.

    Sizes differ by at most one. `seed=None` cuts contiguous folds; a seed shuffles first.

    >>> [(train.size(10), validation.size(10)) for train, validation in fold_parts(10, 3)]
    [(6, 4), (7, 3), (7, 3)]
    """
    if as_count("the number of folds", k, least=2) > n:
        raise PipelineError(f"{n} samples cannot be cut into {k} folds. Give a number from 2 to {n}.")
    shuffle = None if seed is None else Shuffled(seed)
    small, larger = divmod(n, k)
    starts = [fold * small + min(fold, larger) for fold in range(k + 1)]
    return [(Rest(start, stop, n, shuffle), Part(start, stop, n, shuffle)) for start, stop in pairwise(starts)]
