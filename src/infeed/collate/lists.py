"""List: arrays of different sizes kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infeed.collate.collate import Collate, Memory, lists_as_arrays, take_apart
from infeed.collate.leaves import classify
from infeed.collate.stack import stack_leaves


@dataclass(frozen=True, repr=False)
class List(Collate):
    """Each field a list with one entry per sample, only numbers of one dtype are stacked.

    The arrays are those of the samples, not copies. Rows of any mixture are welcome.

    >>> import numpy as np
    >>> from infeed.collate import Heap
    >>> List()([{"image": np.zeros(2), "label": 3}, {"image": np.zeros(1), "label": 5}], Heap())
    {'image': [array([0., 0.]), array([0.])], 'label': array([3, 5])}
    """

    def __call__(self, samples: list[Any], memory: Memory) -> Any:
        """The batch, in the structure of the samples."""
        tree, columns = take_apart(lists_as_arrays(samples))
        leaves = []
        for name, column in zip(tree.names, columns, strict=True):
            found = classify(column, name, strict=False)
            # A new list: a column of bare samples is the caller's own.
            leaves.append(stack_leaves(found, name, memory) if found.kind == "numbers" else list(column))
        return tree.build(leaves)
