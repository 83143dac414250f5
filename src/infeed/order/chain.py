"""A chain of orders over a source: from positions of an epoch down to indices of the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from infeed.errors import PipelineError
from infeed.order.order import MOST, IntArray, Order
from infeed.order.recent import Recent

BLOCK = 65_536
"""Positions computed at a time: the cost of a call to numpy is spread over them, and they stay in cache."""


def _few_blocks() -> Recent[IntArray]:
    """Room for the ends of two blocks in two epochs at once."""
    return Recent(keep=4)


@dataclass(frozen=True)
class Chain:
    """Orders one on top of another over `n` samples; a position is one of the last order added.

    An empty chain is the sequential order. Positions beyond the end begin again at the front, which is what a
    wrapped last step needs.

    >>> from infeed.order import Repeat, Slice
    >>> chain = Chain((Slice(stop=3), Repeat(2)), n=10)
    >>> chain.size
    6
    >>> chain.at(np.array([0, 4, 7]), epoch=0).tolist()
    [0, 1, 1]
    >>> chain.range(2, 8, epoch=0).tolist()
    [2, 0, 1, 2, 0, 1]
    """

    orders: tuple[Order, ...]
    n: int
    _sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _blocks: Recent[IntArray] = field(default_factory=_few_blocks, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.n <= MOST:
            raise PipelineError(f"there are {self.n} samples, but an order is over 0 to 2^63 of them.")
        sizes = [self.n]
        for order in self.orders:
            sizes.append(order.size(sizes[-1]))
        object.__setattr__(self, "_sizes", tuple(sizes))

    @property
    def size(self) -> int:
        """How many positions one epoch has."""
        return self._sizes[-1]

    def at(self, positions: IntArray, epoch: int) -> IntArray:
        """The source's index at each position."""
        if not len(positions):
            return np.empty(0, np.int64)
        if not self.size:
            raise PipelineError("there is no sample to give: the chain of orders leaves none.")
        # As unsigned, because a size of 2^63 is no int64.
        wrapped = positions.astype(np.uint64) % np.uint64(self.size)
        return self._down(wrapped.astype(np.int64), epoch)

    def _down(self, indices: IntArray, epoch: int) -> IntArray:
        """From positions of the last order to indices of the source, one order after another."""
        for order, n in zip(reversed(self.orders), reversed(self._sizes[:-1]), strict=True):
            indices = order.at(indices, n, epoch)
        return indices

    def range(self, start: int, stop: int, epoch: int) -> IntArray:
        """`at` of the consecutive positions from `start` to `stop`; read-only, from whole blocks kept."""
        if stop <= start or stop > self.size or not self.orders:
            return self.at(np.arange(start, stop), epoch)
        pieces = []
        for number in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            begin = number * BLOCK
            block = self._blocks.get((epoch, number), partial(self._block, begin, epoch))
            pieces.append(block[max(start - begin, 0) : stop - begin])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _block(self, begin: int, epoch: int) -> IntArray:
        block = self._down(np.arange(begin, min(begin + BLOCK, self.size)), epoch)
        block.flags.writeable = False
        return block
