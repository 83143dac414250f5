"""What a source is: samples by index, one by one or, where it can, whole columns at a time."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.trees import Tree

IntArray = NDArray[np.int64]
Rows = NDArray[Any] | list[Any]


class Source(ABC):
    """Where samples come from. A kind of source needs `__len__` and `fetch`; the rest has defaults.

    What a source holds are plain attributes, because it travels to worker processes by pickle. The
    indices given to `fetch` are in range; whoever calls it has checked that.

    >>> class Squares(Source):
    ...     def __len__(self):
    ...         return 10
    ...     def fetch(self, indices, epoch):
    ...         return [i * i for i in indices.tolist()]
    >>> Squares()[3], Squares()[-1]
    (9, 81)
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        """The samples at `indices`, in that order."""

    def __getitem__(self, index: int) -> Any:
        """One sample, as epoch 0 sees it; negative indices and `IndexError` as for lists."""
        wanted = operator.index(index)
        length = len(self)
        if not -length <= wanted < length:
            raise IndexError(f"there is no sample {wanted}: the source has {length} samples")
        return self.fetch(np.array([wanted % length], np.int64), 0)[0]

    def __iter__(self) -> Iterator[Any]:
        """All samples, one after the other, as epoch 0 sees them."""
        return (self[index] for index in range(len(self)))

    @property
    def columns(self) -> Columns | None:
        """The same samples by column, so that a whole batch is one gather; None where that cannot be."""
        return None

    @property
    def thread_safe(self) -> bool:
        """Whether several threads may call `fetch` at once; True only where no user's code runs in it."""
        return False

    @property
    def asks_for_batches(self) -> bool:
        """Whether `fetch` asks the user's code for all samples in one call, such as `__getitems__`."""
        return False

    @property
    def fields(self) -> str:
        """What is known of a sample without fetching one, for printing."""
        return "" if self.columns is None else str(self.columns)

    def __repr__(self) -> str:
        described = f", {self.fields}" if self.fields else ""
        return f"<{type(self).__name__}: {len(self)} samples{described}>"


class Column(ABC):
    """One leaf of every sample. `dtype` and `shape` are those of a row; both None when rows may differ.

    >>> class Evens(Column):
    ...     dtype, shape = np.dtype(np.int64), ()
    ...     def take(self, indices, out=None):
    ...         return np.multiply(indices, 2, out=out)
    >>> Evens().take(np.array([4, 1]))
    array([8, 2])
    >>> Evens().summary
    'int64[]'
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None

    @abstractmethod
    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> Rows:
        """The rows at `indices`, in memory of their own: an array, or a list when rows may differ.

        `out` is exactly `[len(indices), *shape]` of this dtype, and only given when these are known.
        """

    @property
    def summary(self) -> str:
        """Dtype and row shape in few letters: `float32[1,128,128]`, or `varying`."""
        if self.dtype is None or self.shape is None:
            return "varying"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Columns:
    """A source seen by column: the structure of a sample, and one column for each of its leaves.

    >>> import infeed.sources
    >>> columns = infeed.sources.arrays(x=np.zeros((5, 2)), y=np.arange(5)).columns
    >>> print(columns)
    {x: float64[2], y: int64[]}
    >>> columns.samples(np.array([3]))[0]["x"]
    array([0., 0.])
    """

    tree: Tree
    columns: list[Column]

    def samples(self, indices: IntArray) -> list[Any]:
        """The samples at `indices`, made of the rows of freshly gathered columns."""
        return assemble(self.tree, [list(column.take(indices)) for column in self.columns])

    def __str__(self) -> str:
        return _describe(self.tree, iter([column.summary for column in self.columns]))


def assemble(tree: Tree, columns: list[list[Any]]) -> list[Any]:
    """Samples of structure `tree` from one list of values per leaf: the inverse of `Tree.columns`.

    >>> assemble(Tree.of({"x": 0, "y": (0, 0)}), [[1, 2], [3, 4], [5, 6]])
    [{'x': 1, 'y': (3, 5)}, {'x': 2, 'y': (4, 6)}]
    """
    return _assemble(tree, iter(columns))


def _assemble(tree: Tree, columns: Iterator[list[Any]]) -> list[Any]:
    if tree.kind == "leaf":
        return next(columns)
    parts = [_assemble(child, columns) for child in tree.children]
    if tree.kind == "dict":
        return _dicts(tree.keys, parts)
    if tree.kind == "tuple":
        return list(zip(*parts, strict=True))
    # the other kinds are rebuilt from flat values: their children are done, so they are leaves here
    flat = Tree(tree.kind, tree.keys, tuple(Tree("leaf") for _ in tree.keys), tree.type)
    return [flat.build(values) for values in zip(*parts, strict=True)]


def _dicts(keys: tuple[Any, ...], columns: list[list[Any]]) -> list[Any]:
    """One dict per row; field by field, which takes half the time of a `dict(zip(...))` per row."""
    samples = [{keys[0]: value} for value in columns[0]]
    for key, column in zip(keys[1:], columns[1:], strict=True):
        for sample, value in zip(samples, column, strict=True):
            sample[key] = value
    return samples


def _describe(tree: Tree, summaries: Iterator[str]) -> str:
    if tree.kind == "leaf":
        return next(summaries)
    inner = [_describe(child, summaries) for child in tree.children]
    if tree.kind in ("tuple", "list"):
        return f"({', '.join(inner)})"
    pairs = zip(tree.keys, inner, strict=True)
    return "{" + ", ".join(f"{key}: {text}" for key, text in pairs) + "}"
