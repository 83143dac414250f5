"""What an order is: a pure function from positions of an epoch to indices of samples."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]

MOST = 2**63
"""The largest number of samples an order can have: beyond it int64 has no index."""


@runtime_checkable
class Order(Protocol):
    """Which sample comes when; a value without state, so any part of any epoch can be asked for alone.

    A kind of order is a frozen dataclass that pickles and prints in one short line. A kind with
    randomness has a `seed`. Kinds may remember what they computed, but never answer differently for it.

    >>> from infeed.order import Shuffled
    >>> order = Shuffled(seed=7)
    >>> isinstance(order, Order), order.size(4)
    (True, 4)
    >>> sorted(order.at(np.arange(4), 4, epoch=0).tolist())
    [0, 1, 2, 3]
    """

    def size(self, n: int) -> int:
        """How many positions one epoch has over `n` samples; `PipelineError` when it cannot have any."""

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The sample index (0 to n-1) at each of `positions` (0 to `size(n)`-1, in any order)."""
