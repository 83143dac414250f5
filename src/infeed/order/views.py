"""Views: a part of the samples, one of several shards, or all of them several times; computed, not stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from infeed.errors import PipelineError
from infeed.order.counts import as_count
from infeed.order.given import Given, Indices
from infeed.order.order import MOST, IntArray


@dataclass(frozen=True)
class Slice:
    """The samples `[start:stop:step]`, with the meaning a slice has for a list.

    >>> Slice(2, 8, 3).at(np.arange(2), 10, epoch=0).tolist()
    [2, 5]
    >>> Slice(stop=100).size(10), Slice(-3).size(10)
    (10, 3)
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        if self.step == 0:
            raise PipelineError("the step of a slice is 0. Give 1 for every sample, 2 for every second one.")

    def size(self, n: int) -> int:
        """How many samples the slice has."""
        start, stop, step = slice(self.start, self.stop, self.step).indices(n)
        # len(range(...)) would do, but overflows at 2^63.
        return max(0, -((start - stop) // step))

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """`start + step * position`."""
        start, _, step = slice(self.start, self.stop, self.step).indices(n)
        return np.asarray(positions * step + start, np.int64)


class Subset(Given):
    """The samples with the given indices, in that order.

    >>> Subset([4, 1]).at(np.arange(2), 5, epoch=3).tolist()
    [4, 1]
    """

    def __init__(self, indices: Indices):
        if callable(indices):
            raise PipelineError("a subset is a sequence of indices. For a function, give an order.")
        super().__init__(indices)


@dataclass(frozen=True)
class Shard:
    """The `index`-th of `count` shards: every `count`-th sample; sizes differ by at most one.

    >>> Shard(1, 3).at(np.arange(2), 7, epoch=0).tolist()
    [1, 4]
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", as_count("the number of shards", self.count))
        object.__setattr__(self, "index", as_count("the index of a shard", self.index, least=0))
        if self.index >= self.count:
            raise PipelineError(
                f"there is no shard {self.index} of {self.count}. Shards count from 0 to {self.count - 1}."
            )

    def size(self, n: int) -> int:
        """The samples of this shard."""
        return (n - self.index + self.count - 1) // self.count

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """`index + count * position`."""
        return np.asarray(positions * self.count + self.index, np.int64)


@dataclass(frozen=True)
class Repeat:
    """All samples `times` times in one epoch, each time in the same order.

    Shuffle after repeating to mix the repetitions.

    >>> Repeat(2).at(np.arange(6), 3, epoch=0).tolist()
    [0, 1, 2, 0, 1, 2]
    """

    times: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", as_count("times", self.times))

    def size(self, n: int) -> int:
        """`times` epochs' worth of positions."""
        if n * self.times > MOST:
            raise PipelineError(
                f"{n} samples {self.times} times are more than 2^63. Repeat less often; for a stream "
                "without end, ask the loader for endless epochs."
            )
        return n * self.times

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The sample at the same place of the one round."""
        return np.asarray(positions % n, np.int64)
