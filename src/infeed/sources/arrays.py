"""Samples from arrays, lists and accessors: one field each, gathered a whole batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infeed.errors import PipelineError
from infeed.sources.columns import AccessorColumn, as_column
from infeed.sources.source import Column, Columns, IntArray, Source
from infeed.trees import LEAF, Tree


class ArraysSource(Source):
    """What `arrays` makes: sample i is row i of every column.

    >>> import numpy as np
    >>> ArraysSource(Columns(LEAF, [as_column(np.arange(4), "")]), 4)
    <ArraysSource: 4 samples, int64[]>
    """

    def __init__(self, columns: Columns, length: int):
        self._columns = columns
        self._length = length

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        return self._columns.samples(indices)

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def thread_safe(self) -> bool:
        return not self.asks_for_batches

    @property
    def asks_for_batches(self) -> bool:
        """Whether a column is an accessor, which takes an array of indices."""
        return any(isinstance(column, AccessorColumn) for column in self._columns.columns)

    def select(self, names: Iterable[Any]) -> ArraysSource:
        """Only these fields, in this order; positions instead of names where samples are tuples.

        >>> arrays(x=[1, 2], y=[3, 4]).select(["y"]).fields
        '{y: int64[]}'
        """
        wanted = [names] if isinstance(names, str) else list(names)
        self._check_known(wanted)
        if not wanted or len(set(wanted)) < len(wanted):
            raise PipelineError(f"select takes at least one field, each once, and was given {wanted}")
        tree = self._columns.tree
        columns = [self._columns.columns[tree.keys.index(name)] for name in wanted]
        keys = tuple(wanted) if tree.kind == "dict" else tuple(range(len(wanted)))
        return self._of(Tree(tree.kind, keys, (LEAF,) * len(keys)), columns)

    def rename(self, mapping: Mapping[str, str]) -> ArraysSource:
        """The same fields under other names: `{old: new}`; those not mentioned keep theirs.

        >>> arrays(x=[1, 2], y=[3, 4]).rename({"x": "image"}).fields
        '{image: int64[], y: int64[]}'
        """
        tree = self._columns.tree
        if tree.kind != "dict":
            raise PipelineError("rename needs named fields; write arrays(name=...) to name them")
        self._check_known(list(mapping))
        keys = tuple(mapping.get(key, key) for key in tree.keys)
        if len(set(keys)) < len(keys):
            raise PipelineError(f"rename would give two fields the same name: {', '.join(keys)}")
        return self._of(Tree("dict", keys, tree.children), self._columns.columns)

    def _of(self, tree: Tree, columns: list[Column]) -> ArraysSource:
        return ArraysSource(Columns(tree, columns), self._length)

    def _check_known(self, names: list[Any]) -> None:
        tree = self._columns.tree
        if tree.kind == "leaf":
            raise PipelineError("there are no fields to choose from: the sample is the bare row")
        unknown = [name for name in names if name not in tree.keys]
        if unknown:
            there_are = ", ".join(map(repr, tree.keys))
            raise PipelineError(f"there is no field {unknown[0]!r}; there are {there_are}")


def arrays(*positional: Any, **named: Any) -> ArraysSource:
    """Samples from one array per field: `arrays(image=x, label=y)` gives dicts, `arrays(x, y)` tuples,
    and `arrays(x)` the bare rows.

    A field is a numpy array, a memory map, a tensor, a nested list, or any object with `__len__` and a
    `__getitem__` that takes an array of indices and returns an array or a list of rows. Lists are turned
    into arrays once; rows of different sizes stay apart.

    >>> import numpy as np
    >>> source = arrays(image=np.zeros((10, 2, 2), np.float32), label=list(range(10)))
    >>> source
    <ArraysSource: 10 samples, {image: float32[2,2], label: int64[]}>
    >>> int(source[3]["label"])
    3
    """
    if bool(positional) == bool(named):
        raise PipelineError(
            "arrays takes either arrays or named arrays, and at least one: arrays(x, y) or arrays(image=x, label=y)"
        )
    if named:
        tree = Tree("dict", tuple(named), (LEAF,) * len(named))
    elif len(positional) == 1:
        tree = LEAF
    else:
        tree = Tree("tuple", tuple(range(len(positional))), (LEAF,) * len(positional))
    data = list(named.values()) if named else list(positional)
    columns = [as_column(field, name) for field, name in zip(data, tree.names, strict=True)]
    return ArraysSource(Columns(tree, columns), _common_length(tree.names, columns))


def _common_length(names: tuple[str, ...], columns: list[Any]) -> int:
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in zip(names, lengths, strict=True))
        raise PipelineError(f"the fields differ in length: {listed}; each needs one row per sample")
    if not lengths[0]:
        raise PipelineError("the arrays are empty: there is no sample to load")
    return lengths[0]
