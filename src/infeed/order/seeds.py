"""Seeds: whatever a user calls a seed, as one plain integer."""

from __future__ import annotations

import numpy as np

from infeed.errors import PipelineError


def as_seed(seed: int | np.random.RandomState | np.random.Generator) -> int:
    """An integer seed from an integer or, by one draw of 63 bits, from one of numpy's generators.

    The draw happens now and moves the generator on, so that the pipeline has one fixed seed from here.

    >>> as_seed(7)
    7
    >>> as_seed(np.random.default_rng(0)) == as_seed(np.random.default_rng(0))
    True
    """
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63, dtype=np.uint64))
    if isinstance(seed, np.random.RandomState):
        return int(seed.randint(2**63, dtype=np.uint64))
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise PipelineError(
            f"seed is {seed!r}, but a seed is an integer, a numpy.random.Generator or a RandomState. "
            "Give a number, for instance seed=0: the order of every epoch follows from it."
        )
    if not 0 <= seed < 2**64:
        raise PipelineError(f"seed is {seed}, but a seed lies between 0 and 2**64 - 1. Give such a number.")
    return int(seed)
