"""Weighted orders: samples drawn with replacement, each as often as its weight says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from infeed.errors import PipelineError
from infeed.order.counts import as_count
from infeed.order.keys import key_of, uniform
from infeed.order.order import IntArray
from infeed.order.seeds import as_seed


@dataclass(frozen=True, eq=False, repr=False)
class Weighted:
    """`samples` draws with replacement (None: as many as there are samples), each epoch its own.

    The draw at a position depends on (seed, epoch, position) alone, and is one search in the summed weights.

    >>> order = Weighted([0.0, 1.0, 3.0], samples=1000, seed=7)
    >>> drawn = order.at(np.arange(1000), 3, epoch=0)
    >>> np.bincount(drawn).tolist()
    [0, 217, 783]
    """

    weights: NDArray[np.float64]
    samples: int | None
    seed: int
    _summed: NDArray[np.float64] = field(init=False)
    _last: int = field(init=False)

    def __init__(self, weights: ArrayLike, samples: int | None = None, seed: int = 0):
        checked = _checked_weights(weights)
        object.__setattr__(self, "weights", checked)
        object.__setattr__(self, "samples", None if samples is None else as_count("samples", samples))
        object.__setattr__(self, "seed", as_seed(seed))
        object.__setattr__(self, "_summed", np.cumsum(checked))
        object.__setattr__(self, "_last", int(np.flatnonzero(checked)[-1]))

    def size(self, n: int) -> int:
        """The number of draws; there must be one weight for each sample."""
        if n != len(self.weights):
            raise PipelineError(
                f"there are {len(self.weights)} weights for {n} samples. Give one weight (or label) for "
                "each sample, in the order the samples have before this stage."
            )
        return n if self.samples is None else self.samples

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The sample drawn at each position of that epoch."""
        draws = uniform(positions, key_of("weighted", self.seed, epoch)) * self._summed[-1]
        found = np.searchsorted(self._summed, draws, side="right")
        # A draw of almost 1 may round up to the very sum, behind every sample.
        return np.asarray(np.minimum(found, self._last), np.int64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weighted):
            return NotImplemented
        same = (self.samples, self.seed) == (other.samples, other.seed)
        return same and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.samples, self.seed, self.weights.tobytes()))

    def __repr__(self) -> str:
        return f"Weighted({len(self.weights)} weights, samples={self.samples}, seed={self.seed})"


def _checked_weights(weights: ArrayLike) -> NDArray[np.float64]:
    checked = np.array(weights, dtype=np.float64)
    if checked.ndim != 1 or not checked.size:
        raise PipelineError(f"weights have shape {checked.shape}. Give one number for each sample.")
    wrong = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if wrong.size:
        raise PipelineError(
            f"the weight of sample {wrong[0]} is {checked[wrong[0]]}. Weights are finite and not negative; "
            "0 leaves a sample out."
        )
    if not checked.any():
        raise PipelineError(
            "all weights are 0, so nothing can be drawn. Give at least one sample a greater weight."
        )
    if not np.isfinite(checked.sum()):
        raise PipelineError("the weights sum to infinity. Only their ratios matter: divide by the largest.")
    checked.flags.writeable = False
    return checked


def balanced_weights(labels: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
    """One weight for each sample, such that every class is drawn equally often; they sum to 1.

    >>> balanced_weights(["cat", "cat", "cat", "dog"]).tolist()
    [0.16666666666666666, 0.16666666666666666, 0.16666666666666666, 0.5]
    """
    known = np.asarray(labels)
    if known.ndim != 1 or not known.size:
        raise PipelineError(f"labels have shape {known.shape}. Give one label for each sample.")
    classes, members, counts = np.unique(known, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (counts[members] * len(classes)), np.float64)
