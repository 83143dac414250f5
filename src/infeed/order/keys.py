"""Keyed hashing: well mixed bits for (seed, epoch, position), each position computable alone.

The mixing is the finaliser of splitmix64. Python integers serve the few keys of an epoch, numpy arrays the
many positions; both give the same bits on every machine and with every version of numpy.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infeed.order.order import IntArray

Bits: TypeAlias = NDArray[np.uint64]

_MASK = 2**64 - 1
_STRIDE = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def key_of(purpose: str, *numbers: int) -> int:
    """A 64-bit key. The purpose keeps two uses of one seed apart, as a shuffle and a draw of weights.

    >>> key_of("shuffled", 7, 0) == key_of("shuffled", 7, 0)
    True
    >>> len({key_of("shuffled", 7, 0), key_of("shuffled", 7, 1), key_of("weighted", 7, 0)})
    3
    """
    key = zlib.crc32(purpose.encode())
    for number in numbers:
        key = _mix(((key ^ (number & _MASK)) + _STRIDE) & _MASK)
    return key


def _mix(key: int) -> int:
    key = ((key ^ (key >> 30)) * _FIRST) & _MASK
    key = ((key ^ (key >> 27)) * _SECOND) & _MASK
    return key ^ (key >> 31)


def hashed(values: IntArray | Bits, key: int) -> Bits:
    """64 bits for each of `values` under `key`.

    >>> bits = hashed(np.arange(3), key=1)
    >>> bits.dtype, len(set(bits.tolist()))
    (dtype('uint64'), 3)
    """
    bits = values.astype(np.uint64)
    bits *= np.uint64(_STRIDE)
    bits += np.uint64(key)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(_FIRST)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(_SECOND)
    bits ^= bits >> np.uint64(31)
    return bits


def uniform(values: IntArray, key: int) -> NDArray[np.float64]:
    """A double in [0, 1) for each of `values` under `key`.

    >>> draws = uniform(np.arange(1000), key=1)
    >>> bool(0 <= draws.min() < 0.01), bool(0.99 < draws.max() < 1)
    (True, True)
    """
    return (hashed(values, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
