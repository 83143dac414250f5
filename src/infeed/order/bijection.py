"""A keyed permutation of 0..n-1 that is computed, not stored: a Feistel network with cycle walking.

A number of b bits is cut in two halves. A round replaces one half by its XOR with a hash of the other; that
can be undone, so any number of rounds is a permutation of 0..2^b-1. A result outside 0..n-1 goes through
again until it falls inside (b is the smallest that fits, so that is at most once more on average).

Few bits need more rounds: with eight, the orders of 5 to 8 things and the pairs among 16 are measurably not
equally likely (a chi-square over 200,000 keys), while 24 rounds pass, and so do eight from 20 things on.
"""

from __future__ import annotations

import numpy as np

from infeed.order.keys import Bits, hashed
from infeed.order.order import IntArray

ROUNDS = 8
ROUNDS_FOR_FEW = 24
FEW_BITS = 8
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


def permuted(positions: IntArray, n: int, keys: Bits) -> IntArray:
    """Where the permutation of 0..n-1 that belongs to a key sends each position.

    `keys` has one key for all positions, or one for each: many small permutations in one call.

    >>> permuted(np.arange(5), 5, np.array([9], np.uint64)).tolist()
    [4, 2, 0, 1, 3]
    >>> permuted(np.array([0, 2**62]), 2**63, np.array([9], np.uint64)).dtype
    dtype('int64')
    """
    bits = max(2, (n - 1).bit_length())
    rounds = np.stack(
        [hashed(keys, number + 1) for number in range(ROUNDS_FOR_FEW if bits <= FEW_BITS else ROUNDS)]
    )
    out = _through(positions.astype(np.uint64), bits, rounds)
    limit = np.uint64(n)
    outside = np.flatnonzero(out >= limit)
    while outside.size:
        own = rounds if rounds.shape[1] == 1 else rounds[:, outside]
        again = _through(out[outside], bits, own)
        out[outside] = again
        outside = outside[again >= limit]
    return out.astype(np.int64)


def _through(values: Bits, bits: int, rounds: Bits) -> Bits:
    """The network once: values of `bits` bits to values of `bits` bits."""
    low = bits // 2
    high = bits - low
    right = values & np.uint64((1 << low) - 1)
    left = values >> np.uint64(low)
    for even, odd in zip(rounds[::2], rounds[1::2], strict=True):
        left ^= _scrambled(right, even, high)
        right ^= _scrambled(left, odd, low)
    left <<= np.uint64(low)
    left |= right
    return left


def _scrambled(half: Bits, key: Bits, bits: int) -> Bits:
    """The topmost `bits` of a keyed hash; a product's top bits depend on all bits below them."""
    mixed = half ^ key
    mixed *= _FIRST
    mixed ^= mixed >> _HALF
    mixed *= _SECOND
    mixed >>= np.uint64(64 - bits)
    return mixed
