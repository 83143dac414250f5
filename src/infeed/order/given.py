"""A user's own order: a sequence of indices, or a function that makes one for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from infeed.errors import PipelineError
from infeed.order.order import IntArray
from infeed.order.recent import Recent

Indices = Sequence[int] | NDArray[np.integer]


def as_indices(indices: Indices) -> IntArray:
    """A read-only int64 copy of a sequence of indices, none of them negative.

    >>> as_indices([2, 0]).tolist()
    [2, 0]
    """
    raw = np.asarray(indices)
    if raw.dtype == np.bool_:
        raise PipelineError("the indices are True and False. For a mask, give numpy.flatnonzero(mask).")
    if raw.ndim != 1 or (raw.size and raw.dtype.kind not in "iu"):
        raise PipelineError(
            f"the indices have dtype {raw.dtype} and shape {raw.shape}. Give one sequence of integers."
        )
    if raw.size and raw.max() > np.iinfo(np.int64).max:
        raise PipelineError(f"index {raw.max()} does not fit into 64 bits with a sign.")
    made = raw.astype(np.int64)
    if made.size and made.min() < 0:
        where = int(made.argmin())
        raise PipelineError(f"index {made[where]} at position {where} is negative. Indices count from 0.")
    made.flags.writeable = False
    return made


def check_indices(indices: IntArray, n: int) -> None:
    """`PipelineError` when one of `indices` is no index of `n` samples.

    >>> check_indices(np.array([0, 3]), 4)
    """
    if indices.size and int(indices.max()) >= n:
        where = int(indices.argmax())
        raise PipelineError(
            f"index {indices[where]} at position {where} asks for a sample beyond the last: there are {n}, "
            f"so indices go from 0 to {n - 1}."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """The indices the user gave, in that order: repeated, left out, or sorted as they like.

    A function is called with the epoch and returns that epoch's indices, as many in every epoch.

    >>> Given([2, 2, 0]).at(np.array([0, 2]), 3, epoch=0).tolist()
    [2, 0]
    >>> Given(lambda epoch: [epoch, 0]).at(np.arange(2), 3, epoch=1).tolist()
    [1, 0]
    """

    indices: IntArray | Callable[[int], Indices]
    _made: Recent[IntArray] = field(init=False)
    _length: Recent[int] = field(init=False)

    def __init__(self, indices: Indices | Callable[[int], Indices]):
        object.__setattr__(self, "indices", indices if callable(indices) else as_indices(indices))
        object.__setattr__(self, "_made", Recent[IntArray](keep=2))
        object.__setattr__(self, "_length", Recent[int](keep=1))

    def size(self, n: int) -> int:
        """How many indices there are; `PipelineError` when one of them has no sample."""
        if callable(self.indices):
            return self._length.get(n, lambda: len(self._made_for(0, n)))
        check_indices(self.indices, n)
        return len(self.indices)

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The user's index at each position of that epoch."""
        if callable(self.indices):
            return self._made.get((epoch, n), lambda: self._made_for(epoch, n))[positions]
        return self.indices[positions]

    def _made_for(self, epoch: int, n: int) -> IntArray:
        """What the user's function returns for that epoch, checked."""
        assert callable(self.indices)
        made = as_indices(self.indices(epoch))
        check_indices(made, n)
        if epoch != 0 and len(made) != self.size(n):
            raise PipelineError(
                f"the order function gave {self.size(n)} indices for epoch 0, {len(made)} for epoch {epoch}. "
                "Return equally many for every epoch, so that the number of steps is known."
            )
        return made

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.indices, other.indices
        if callable(mine) or callable(theirs):
            return mine is theirs
        return np.array_equal(mine, theirs)

    def __hash__(self) -> int:
        return hash(self.indices if callable(self.indices) else self.indices.tobytes())

    def __repr__(self) -> str:
        if callable(self.indices):
            return f"Given({getattr(self.indices, '__qualname__', type(self.indices).__qualname__)})"
        return f"{type(self).__name__}({len(self.indices)} indices)"
