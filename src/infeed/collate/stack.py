"""Stack: the rows of every field on a new first axis."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from infeed.collate.collate import Array, Collate, Memory, Mismatch, take_apart
from infeed.collate.leaves import DTYPE_ADVICE, Leaves, classify, describe, unequal

SHAPE = attrgetter("shape")
SHAPE_ADVICE = 'stack needs equal shapes: use collate="pad", "concat" or "list", or make them equal with a map'


@dataclass(frozen=True, repr=False)
class Stack(Collate):
    """Every field stacked: `B` rows of shape `S` become one array `[B, *S]`.

    Python numbers become `bool`, `int64`, `float64` and `complex128`; numpy scalars and arrays keep their
    dtype, and CPU tensors become a tensor. Strings, bytes, `None` and other objects become a list.

    >>> from infeed.collate import Heap
    >>> samples = [{"x": np.array([1, 2]), "y": 0.5, "z": "a"}, {"x": np.array([3, 4]), "y": 1.5, "z": "b"}]
    >>> Stack()(samples, Heap())
    {'x': array([[1, 2],
           [3, 4]]), 'y': array([0.5, 1.5]), 'z': ['a', 'b']}
    """

    def __call__(self, samples: list[Any], memory: Memory) -> Any:
        """The batch, in the structure of the samples."""
        tree, columns = take_apart(samples)
        leaves = [
            stack_leaves(classify(column, name), name, memory)
            for name, column in zip(tree.names, columns, strict=True)
        ]
        return tree.build(leaves)


def stack_leaves(leaves: Leaves, name: str, memory: Memory) -> Any:
    """One field stacked: an array, a tensor where the samples had tensors, or a list of objects.

    >>> from infeed.collate import Heap
    >>> stack_leaves(Leaves("numbers", [1, 2], np.dtype("int64")), "x", Heap())
    array([1, 2])
    """
    if leaves.kind == "arrays":
        return leaves.like_samples(stack_arrays(leaves.values, name, memory))
    if leaves.kind == "numbers":
        return leaves.like_samples(stack_numbers(leaves, name, memory))
    return leaves.values


def stack_arrays(arrays: list[Array], name: str, memory: Memory) -> Array:
    """Arrays of equal shape and dtype on a new first axis, each byte written once.

    >>> from infeed.collate import Heap
    >>> stack_arrays([np.array([1, 2]), np.array([3, 4])], "x", Heap())
    array([[1, 2],
           [3, 4]])
    """
    if len(set(map(SHAPE, arrays))) > 1:
        raise unequal(name, arrays, "shape", SHAPE_ADVICE)
    shape = arrays[0].shape
    out = memory.new((len(arrays), *shape), arrays[0].dtype)
    end_to_end = out.reshape((len(arrays) * shape[0], *shape[1:]))
    concatenate(arrays, 0, end_to_end, name)
    return out


def stack_numbers(leaves: Leaves, name: str, memory: Memory) -> Array:
    """Numbers of one dtype as an array with one dimension.

    >>> from infeed.collate import Heap
    >>> stack_numbers(Leaves("numbers", [1, 2], np.dtype("int64")), "x", Heap())
    array([1, 2])
    """
    values = leaves.values
    assert leaves.dtype is not None
    out = memory.new((len(values),), leaves.dtype)
    if isinstance(values[0], np.ndarray):
        return np.stack(values, out=out, casting="no")
    try:
        out[:] = values
    except OverflowError:
        limits = np.iinfo(np.int64)
        row = next(row for row, value in enumerate(values) if not limits.min <= value <= limits.max)
        what = (
            f"{describe(name)}: row {row} holds {values[row]}, which does not fit int64; "
            "make it a str, a float or a np.uint64 with a map"
        )
        raise Mismatch(what, rows=(row,)) from None
    return out


def concatenate(arrays: list[Array], axis: int, out: Array, name: str) -> None:
    """`np.concatenate` into `out`, whose shape must fit, that refuses to cast and names the odd row.

    >>> out = np.empty(3, "int64")
    >>> concatenate([np.array([1]), np.array([2, 3])], 0, out, "x")
    >>> out
    array([1, 2, 3])
    """
    try:
        np.concatenate(arrays, axis=axis, out=out, casting="no")
    except TypeError:
        if len({array.dtype for array in arrays}) == 1:
            raise
        raise unequal(name, arrays, "dtype", DTYPE_ADVICE) from None
