"""Shuffled orders: all samples in random order, or blocks of neighbours in random order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from infeed.order.bijection import permuted
from infeed.order.counts import as_count
from infeed.order.keys import hashed, key_of
from infeed.order.order import IntArray
from infeed.order.recent import Recent
from infeed.order.seeds import as_seed

STORED_UP_TO = 2**20
"""Up to here a permutation is stored (8 bytes a sample), at about 12 ns a sample against 15 to 45 computed.
At 2^24 cache misses make that 70 ns, a second before the epoch can begin."""

Permutation = NDArray[np.int64]


def _two_epochs() -> Recent[Permutation]:
    """Room for two permutations, because the next epoch begins to fill before this one ends."""
    return Recent(keep=2)


@dataclass(frozen=True)
class Shuffled:
    """Every sample once, in another random order each epoch; the same seed and epoch: the same order.

    Up to 2^20 samples this is `numpy.random.Generator.permutation` over Philox, keyed by seed and epoch. The
    order therefore rests on numpy keeping that stream, and a test of ours fails if it ever does not. Above,
    the order is computed position by position, so that it costs no memory and no start-up.

    >>> order = Shuffled(seed=7)
    >>> order.at(np.arange(5), 5, epoch=0).tolist()
    [2, 0, 4, 3, 1]
    >>> order.at(np.arange(5), 5, epoch=1).tolist()
    [1, 4, 2, 0, 3]
    >>> bool(order.at(np.array([10**12]), 10**15, epoch=0) < 10**15)
    True
    """

    seed: int
    _stored: Recent[Permutation] = field(default_factory=_two_epochs, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", as_seed(self.seed))

    def size(self, n: int) -> int:
        """As many positions as samples."""
        return n

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The sample at each position of that epoch."""
        if n > STORED_UP_TO:
            return permuted(positions, n, np.array([key_of("computed", self.seed, epoch)], np.uint64))
        permutation = self._stored.get((epoch, n), lambda: _permutation(self.seed, epoch, n))
        return permutation[positions]


def _permutation(seed: int, epoch: int, n: int) -> Permutation:
    """The stored permutation; Philox has 128 bits of key, so no two (seed, epoch) share a stream."""
    philox = np.random.Philox(key=key_of("stored", seed) | (epoch << 64))
    return np.random.Generator(philox).permutation(n)


@dataclass(frozen=True)
class BlockShuffled:
    """Neighbours stay together: blocks of `block` samples in random order, and random order inside each.

    For data where a jump is dear and the next sample is cheap (a spinning disk, a compressed chunk).

    >>> order = BlockShuffled(seed=7, block=4)
    >>> blocks = order.at(np.arange(12), 12, epoch=0).reshape(3, 4) // 4
    >>> [len(set(row)) for row in blocks.tolist()]
    [1, 1, 1]
    """

    seed: int
    block: int
    _blocks: Shuffled = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", as_seed(self.seed))
        object.__setattr__(self, "block", as_count("block", self.block))
        object.__setattr__(self, "_blocks", Shuffled(self.seed))

    def size(self, n: int) -> int:
        """As many positions as samples."""
        return n

    def at(self, positions: IntArray, n: int, epoch: int) -> IntArray:
        """The sample at each position of that epoch.

        The last block may be short. It gets a random place of its own among the full ones, which keeps the
        way from a position to its block a division.
        """
        full, short = divmod(n, self.block)
        begin = key_of("place of the short block", self.seed, epoch) % (full + 1) * self.block
        in_short = (positions >= begin) & (positions < begin + short)
        among_full = np.where(positions < begin, positions, positions - short)
        out = np.empty(len(positions), np.int64)
        out[in_short] = full * self.block + self._inside(positions[in_short] - begin, short, full, epoch)
        place, offset = np.divmod(among_full[~in_short], self.block)
        chosen = self._blocks.at(place, full, epoch) if full else place
        out[~in_short] = chosen * self.block + self._inside(offset, self.block, chosen, epoch)
        return out

    def _inside(self, offsets: IntArray, size: int, blocks: IntArray | int, epoch: int) -> IntArray:
        """Offsets inside blocks of one size, shuffled by each block's own permutation."""
        if not len(offsets):
            return offsets
        keys = hashed(np.atleast_1d(np.asarray(blocks, np.int64)), key_of("inside a block", self.seed, epoch))
        return permuted(offsets, size, keys)
