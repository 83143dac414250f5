"""Windows over a sequence: a sample is several neighbouring samples, stacked."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.errors import LayoutError, PipelineError
from infeed.sources.accepted import as_indexed
from infeed.sources.columns import is_tensor
from infeed.sources.source import Column, Columns, IntArray, Rows, Source
from infeed.trees import Tree

_NUMBERS = (bool, int, float, complex, np.generic)


class WindowSource(Source):
    """What `window` makes: sample i is made of the `size` samples from `i * stride` on.

    >>> WindowSource(as_indexed(np.arange(5), "window"), size=3, stride=2)[1]
    array([2, 3, 4])
    """

    def __init__(self, member: Source, size: int, stride: int):
        self.member = member
        self.size = size
        self.stride = stride

    def __len__(self) -> int:
        return (len(self.member) - self.size) // self.stride + 1

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        columns = self.columns
        if columns is not None:
            return columns.samples(indices)
        # neighbouring windows overlap: each sample is fetched once
        needed, where = np.unique(rows_of(indices, self.size, self.stride), return_inverse=True)
        samples = self.member.fetch(needed, epoch)
        if not samples:
            return []
        tree = Tree.of(samples[0])
        leaves = tree.columns(samples)
        named = list(zip(leaves, tree.names, strict=True))
        return [
            tree.build([stacked([leaf[row] for row in rows], name, needed[rows]) for leaf, name in named])
            for rows in where.reshape(len(indices), self.size).tolist()
        ]

    @property
    def columns(self) -> Columns | None:
        below = self.member.columns
        if below is None or any(column.dtype is None for column in below.columns):
            return None
        return Columns(below.tree, [WindowColumn(column, self.size, self.stride) for column in below.columns])

    @property
    def thread_safe(self) -> bool:
        return self.member.thread_safe


class WindowColumn(Column):
    """One leaf of a `WindowSource`, gathered for all windows at once.

    >>> window(np.arange(5), 2).columns.columns[0].take(np.array([3, 0]))
    array([[3, 4],
           [0, 1]])
    """

    def __init__(self, column: Column, size: int, stride: int):
        self.column = column
        self.size = size
        self.stride = stride
        self.dtype = column.dtype
        self.shape: tuple[int, ...] = (size, *(column.shape or ()))

    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> Rows:
        rows = rows_of(indices, self.size, self.stride)
        flat = (len(rows), *self.shape[1:])
        if out is not None and out.flags.c_contiguous:
            self.column.take(rows, out.reshape(flat))  # a view, so this writes into out
            return out
        block = np.asarray(self.column.take(rows)).reshape(len(indices), *self.shape)
        if out is None:
            return block
        out[...] = block
        return out


def window(source: Any, n: int, stride: int = 1) -> WindowSource:
    """Every run of `n` neighbouring samples as one sample, stacked on a new first axis; a new one begins
    every `stride` samples.

    >>> list(window(np.arange(6), 3, stride=2))
    [array([0, 1, 2]), array([2, 3, 4])]
    """
    member = as_indexed(source, "window")
    size, step = _count(n, "the size"), _count(stride, "the stride")
    if size > len(member):
        raise PipelineError(f"a window of {size} samples does not fit into a source of {len(member)}")
    return WindowSource(member, size, step)


def rows_of(indices: IntArray, size: int, stride: int) -> IntArray:
    """The samples that the windows at `indices` consist of, window after window.

    >>> rows_of(np.array([0, 2]), size=3, stride=2)
    array([0, 1, 2, 4, 5, 6])
    """
    made: IntArray = (indices[:, None] * stride + np.arange(size)).ravel()
    return made


def stacked(values: Sequence[Any], name: str, samples: IntArray) -> NDArray[Any]:
    """The values of one window as an array; `name` and `samples` say which they are, for messages.

    >>> stacked([1, 2], "x", np.array([0, 1]))
    array([1, 2])
    >>> stacked(["a", "b"], "x", np.array([0, 1]))
    array(['a', 'b'], dtype=object)
    """
    rows = [value.numpy() if is_tensor(value) else value for value in values]
    if all(isinstance(row, np.ndarray) for row in rows):
        for row, sample in zip(rows, samples.tolist(), strict=True):
            if row.shape != rows[0].shape or row.dtype != rows[0].dtype:
                raise LayoutError(
                    f"a window cannot be stacked: field {name!r} is {rows[0].dtype}{list(rows[0].shape)} in "
                    f"sample {samples[0]} and {row.dtype}{list(row.shape)} in sample {sample}; make them "
                    "alike, or pad them"
                )
        return np.stack(rows)
    if all(isinstance(row, _NUMBERS) and not isinstance(row, str | bytes) for row in rows):
        return np.array(rows)
    kept = np.empty(len(rows), object)
    for position, row in enumerate(rows):
        kept[position] = row
    return kept


def _count(value: Any, name: str) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if isinstance(value, bool) or count < 1:
        raise PipelineError(f"{name} of a window must be a whole number above zero, and is {value!r}")
    return count
