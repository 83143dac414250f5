"""The shape of one batch: fields, dtypes, row shapes, and where each lies inside a slot.

A layout is learned from the first samples made. Later samples are checked against it before a byte is
written, because numpy would cast and broadcast without a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.collate.leaves import NUMBERS, as_array
from infeed.errors import LayoutError
from infeed.tensors import from_array, is_tensor, to_array
from infeed.trees import Tree

ALIGN = 64
_PLAIN_OBJECTS = {str, bytes, type(None)}
_shape_of = attrgetter("shape")
_dtype_of = attrgetter("dtype")


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to a whole number of cache lines.

    >>> aligned(65)
    128
    """
    return -(-nbytes // ALIGN) * ALIGN


class Misfit(LayoutError):
    """A row that the layout has no place for. The batch then takes the general way, or fails by name."""

    def __init__(self, row: int, what: str):
        super().__init__(what)
        self.row = row
        self.what = what


@dataclass(frozen=True)
class Field:
    """One leaf of the samples: an array of fixed row shape, or arbitrary objects (`dtype` None).

    >>> Field("image", np.dtype("float32"), (3, 8, 8))
    image: float32[3,8,8]
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] = ()
    tensor: bool = False

    @staticmethod
    def of(name: str, leaf: Any) -> Field:
        """The field that `leaf` is a row of."""
        array = as_array(leaf)
        return Field(name, None) if array is None else Field(name, array.dtype, array.shape, is_tensor(leaf))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in the slot; 0 for objects, which travel beside it."""
        return 0 if self.dtype is None else self.dtype.itemsize * math.prod(self.shape)

    def write(self, column: Sequence[Any], out: NDArray[Any]) -> None:
        """Write one value per row of `out`; `Misfit` before anything wrong is written."""
        kinds = set(map(type, column))
        if kinds == {np.ndarray} and not self.tensor:
            self._write_arrays(column, out)
        elif len(kinds) == 1 and (kind := next(iter(kinds))) in NUMBERS:
            if NUMBERS[kind] != self.dtype or self.shape:
                raise Misfit(0, f"{self} was expected, a Python {kind.__name__} came")
            try:
                out[:] = column
            except OverflowError as error:
                raise Misfit(0, f"{self} cannot hold such a number: {error}") from None
        elif self.tensor and all(map(is_tensor, column)):
            self._write_tensors(column, out)
        elif not self.tensor and all(isinstance(value, np.ndarray | np.generic) for value in column):
            self._write_arrays([np.asarray(value) for value in column], out)
        else:
            self._explain(column)

    def _write_tensors(self, column: Sequence[Any], out: NDArray[Any]) -> None:
        arrays = [to_array(tensor) for tensor in column]
        for row, array in enumerate(arrays):
            if array is None:
                raise Misfit(row, f"{self} was expected, a {column[row].dtype} tensor came")
        self._write_arrays(arrays, out)

    def _write_arrays(self, column: Sequence[Any], out: NDArray[Any]) -> None:
        if set(map(_shape_of, column)) != {self.shape}:
            self._explain(column)
        if not self.shape or 0 in self.shape:
            if set(map(_dtype_of, column)) != {self.dtype}:
                self._explain(column)
            out[:] = column
            return
        flat = out.reshape(len(column) * self.shape[0], *self.shape[1:])
        try:
            np.concatenate(column, axis=0, out=flat, casting="no")
        except TypeError:
            self._explain(column)

    def check_objects(self, column: Sequence[Any]) -> None:
        """`Misfit` when numbers or arrays are among the objects: the batch then goes the general way."""
        if set(map(type, column)) <= _PLAIN_OBJECTS:
            return
        for row, value in enumerate(column):
            if as_array(value) is not None:
                raise Misfit(row, f"{self} was expected, a {type(value).__name__} came")

    def _explain(self, column: Sequence[Any]) -> None:
        """Find the first value that does not fit and say so."""
        for row, value in enumerate(column):
            other = Field.of(self.name, value)
            if other != self:
                came = str(other) if other.dtype is not None else f"a {type(value).__name__}"
                raise Misfit(row, f"{self} was expected, {came} came")
        raise Misfit(0, f"{self} was expected, values of other types came")

    def __repr__(self) -> str:
        kind = "objects" if self.dtype is None else f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return f"{self.name}: {kind}" if self.name else kind


@dataclass(frozen=True)
class Layout:
    """The fields of a batch and the structure that holds them.

    >>> layout = Layout.of({"x": np.zeros(3, "float32"), "y": 1})
    >>> layout
    {x: float32[3], y: int64[]}
    >>> layout.nbytes(rows=10)
    256
    """

    tree: Tree
    fields: tuple[Field, ...]

    @staticmethod
    def of(sample: Any) -> Layout:
        """The layout of a batch of samples like this one."""
        tree = Tree.of(sample)
        return Layout(tree, tuple(map(Field.of, tree.names, tree.leaves(sample))))

    @staticmethod
    def of_batch(batch: Any, rows: int) -> Layout | None:
        """The layout of a finished batch whose every leaf is an array with one row per sample, else None."""
        tree = Tree.of(batch)
        fields = []
        for name, leaf in zip(tree.names, tree.leaves(batch), strict=True):
            field = Field.of(name, leaf)
            if field.dtype is None or not field.shape or field.shape[0] != rows:
                return None
            fields.append(Field(name, field.dtype, field.shape[1:], field.tensor))
        return Layout(tree, tuple(fields)) if fields else None

    @cached_property
    def has_objects(self) -> bool:
        """Whether some leaves are arbitrary objects, which travel beside the slot."""
        return any(field.dtype is None for field in self.fields)

    @cached_property
    def has_arrays(self) -> bool:
        """Whether any leaf lies in the slot."""
        return any(field.dtype is not None for field in self.fields)

    def offsets(self, rows: int) -> tuple[int, ...]:
        """Where each field begins in a slot of `rows` rows; the last entry is the end of all."""
        known = self._offsets.get(rows)
        if known is None:
            ends = [0]
            for field in self.fields:
                ends.append(ends[-1] + aligned(field.row_bytes * rows))
            known = self._offsets[rows] = tuple(ends)
        return known

    @cached_property
    def _offsets(self) -> dict[int, tuple[int, ...]]:
        return {}  # few entries: slots come in few sizes

    def nbytes(self, rows: int) -> int:
        """Bytes of a slot of `rows` rows."""
        return self.offsets(rows)[-1]

    def views(self, memory: NDArray[np.uint8], rows: int) -> list[NDArray[Any] | None]:
        """One array per field that looks into `memory`; None for objects."""
        offsets = self.offsets(rows)
        return [
            None if field.dtype is None else np.ndarray((rows, *field.shape), field.dtype, memory, offset)
            for field, offset in zip(self.fields, offsets, strict=False)
        ]

    def write(self, samples: Sequence[Any], views: Sequence[NDArray[Any] | None], low: int) -> list[list[Any]]:
        """Write samples into rows `low` onward; returns the columns of objects, which have no rows."""
        objects = []
        for field, column, view in zip(self.fields, self.tree.columns(samples), views, strict=True):
            if view is None:
                field.check_objects(column)
                objects.append(column)
            else:
                field.write(column, view[low : low + len(samples)])
        return objects

    def write_batch(self, batch: Any, views: Sequence[NDArray[Any] | None], low: int, rows: int) -> None:
        """Write a finished batch of `rows` rows; `Misfit` if it has another layout."""
        found = Layout.of_batch(batch, rows)
        if found != self:
            raise Misfit(0, f"a batch of {self} was expected, {found or type(batch).__name__} came")
        for leaf, view in zip(self.tree.leaves(batch), views, strict=True):
            array = to_array(leaf) if is_tensor(leaf) else leaf
            view[low : low + rows] = array  # type: ignore[index]

    def batch(self, leaves: Sequence[Any]) -> Any:
        """The leaves as a batch: in structure, and as tensors where the samples were tensors."""
        return self.tree.build(
            [from_array(leaf) if field.tensor else leaf for field, leaf in zip(self.fields, leaves, strict=True)]
        )

    def __repr__(self) -> str:
        if self.tree.kind == "leaf":
            return repr(self.fields[0])
        return "{" + ", ".join(map(repr, self.fields)) + "}"
