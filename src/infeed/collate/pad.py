"""Pad: rows of different lengths filled up to one length, with masks that tell what is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.collate.collate import (
    Array,
    Collate,
    Memory,
    Mismatch,
    attach,
    check_names,
    lists_as_arrays,
    take_apart,
    unique_names,
)
from infeed.collate.leaves import DTYPE_ADVICE, classify, describe, unequal
from infeed.collate.stack import stack_leaves
from infeed.errors import LayoutError, PipelineError

BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, repr=False)
class Pad(Collate):
    """Arrays padded along their first axis and stacked; numbers stacked; other objects in a list.

    Rows must be arrays: a Python list in a sample is structure, and cannot be padded.

    `length`: pad to this, or `{field: length}`; without one, to the longest row of the batch.
    `value`: what to fill with, or `{field: value}`. `fields`: pad only these and stack the rest; without it,
    every array with at least one dimension is padded, also where the rows happen to be equally long, so
    that a batch always has the same entries. `multiple`: round the longest row up to a multiple of this.

    `mask=True` adds a `bool[B, L]` for each padded field, true where the data are: as the entry
    `<field>_mask` when samples are dicts, otherwise the batch is `(batch, masks)` with the masks as a tuple
    in the order of the padded fields.

    >>> from infeed.collate import Heap
    >>> Pad(multiple=4)([{"t": np.array([1, 2, 3])}, {"t": np.array([4])}], Heap())
    {'t': array([[1, 2, 3, 0],
           [4, 0, 0, 0]]), 't_mask': array([[ True,  True,  True, False],
           [ True, False, False, False]])}
    >>> Pad(value=-1, mask=False)([(np.array([1, 2]), 7), (np.array([3]), 8)], Heap())
    (array([[ 1,  2],
           [ 3, -1]]), array([7, 8]))
    """

    length: int | Mapping[str, int] | None = None
    value: float | Mapping[str, float] = 0
    mask: bool = True
    fields: Sequence[str] | None = None
    multiple: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.fields, str):
            object.__setattr__(self, "fields", (self.fields,))
        elif self.fields is not None:
            object.__setattr__(self, "fields", tuple(self.fields))
        for option in ("length", "value"):
            given = getattr(self, option)
            if isinstance(given, Mapping):
                object.__setattr__(self, option, dict(given))
        lengths = self.length.values() if isinstance(self.length, Mapping) else [self.length]
        for length in lengths:
            _check_positive("length", length)
        _check_positive("multiple", self.multiple)
        for value in self.value.values() if isinstance(self.value, Mapping) else [self.value]:
            if not isinstance(value, int | float | complex | np.number | np.bool_):
                raise PipelineError(f"Pad: `value` must be a number, or {{field: number}}; got {value!r}")
        if self.multiple is not None and isinstance(self.length, int):
            raise PipelineError("Pad: `length` already says how long rows become; leave out `multiple`")

    def __call__(self, samples: list[Any], memory: Memory) -> Any:
        """The batch, with its masks."""
        tree, columns = take_apart(lists_as_arrays(samples))
        names = unique_names(tree)
        self._check_names(names)
        padded: list[Any] = []
        masks: dict[str, Any] = {}
        for name, column in zip(names, columns, strict=True):
            leaves = classify(column, name)
            if leaves.kind == "arrays" and (self.fields is None or name in self.fields):
                lengths = _lengths(leaves.values, name)
                rows = self._rows(lengths, name)
                out = self._pad(leaves.values, lengths, rows, name, memory)
                padded.append(leaves.like_samples(out))
                if self.mask:
                    masks[name] = leaves.like_samples(_mask(lengths, rows, memory))
            elif self.fields is not None and name in self.fields:
                raise LayoutError(f"Pad: {describe(name)} has no axis to pad; leave it out of `fields`")
            else:
                padded.append(stack_leaves(leaves, name, memory))
        batch = tree.build(padded)
        return attach(tree, batch, masks, "_mask") if self.mask else batch

    def _check_names(self, names: Sequence[str]) -> None:
        if self.fields is not None:
            check_names("Pad(fields=...)", self.fields, names)
        if isinstance(self.length, Mapping):
            check_names("Pad(length=...)", self.length, names)
        if isinstance(self.value, Mapping):
            check_names("Pad(value=...)", self.value, names)

    def _rows(self, lengths: list[int], name: str) -> int:
        """How long the rows of this field become."""
        longest = max(lengths)
        length = self.length.get(name) if isinstance(self.length, Mapping) else self.length
        if length is None:
            multiple = self.multiple or 1
            return -(-longest // multiple) * multiple
        if longest > length:
            row = next(row for row, n in enumerate(lengths) if n > length)
            what = (
                f"{describe(name)}: row {row} has length {lengths[row]}, but rows are padded to {length}; "
                "cut it with a map, or give a greater `length`"
            )
            raise Mismatch(what, rows=(row,))
        return length

    def _pad(self, arrays: list[Array], lengths: list[int], rows: int, name: str, memory: Memory) -> Array:
        """Data and filling in turns, in one concatenation: each byte is written once."""
        rest, dtype = arrays[0].shape[1:], arrays[0].dtype
        out = memory.new((len(arrays), rows, *rest), dtype)
        filling = np.broadcast_to(self._filling(dtype, name), (rows, *rest))
        pieces = [
            piece for array, length in zip(arrays, lengths, strict=True) for piece in (array, filling[length:])
        ]
        try:
            np.concatenate(pieces, out=out.reshape((len(arrays) * rows, *rest)), casting="no")
        except TypeError:
            raise unequal(name, arrays, "dtype", DTYPE_ADVICE) from None
        return out

    def _filling(self, dtype: np.dtype[Any], name: str) -> Array:
        """The value in the dtype of the field; refused where it would change on the way."""
        value = self.value.get(name, 0) if isinstance(self.value, Mapping) else self.value
        if dtype.kind not in "biufc":
            if value == 0:
                return np.zeros((), dtype)
            raise LayoutError(f"Pad: {describe(name)} is {dtype}, which can only be padded with value=0")
        with np.errstate(all="ignore"):
            filling = np.asarray(value).astype(dtype)
        # Fractions may be rounded to the precision of the field; anything else must arrive as it is.
        rounded = dtype.kind == "c" or (dtype.kind == "f" and not isinstance(value, complex))
        if not (np.isinf(filling) == np.isinf(value) if rounded else filling == value):
            raise LayoutError(
                f"Pad: {describe(name)} is {dtype}, which cannot hold the value {value!r}; "
                "give another `value`, or one per field: value={field: value}"
            )
        return filling


def _check_positive(option: str, given: Any) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise PipelineError(f"Pad: `{option}` must be a positive int, or {{field: int}}, or None; got {given!r}")


def _lengths(arrays: list[Array], name: str) -> list[int]:
    """The first dimension of each row; the others must agree."""
    shapes = [array.shape for array in arrays]
    if len({(len(shape), shape[1:]) for shape in shapes}) > 1:
        first = shapes[0]
        row = next(row for row, shape in enumerate(shapes) if len(shape) != len(first) or shape[1:] != first[1:])
        what = (
            f"{describe(name)}: row 0 has shape {first} and row {row} has shape {shapes[row]}; only the "
            'first axis is padded: make the others equal with a map, or use collate="list"'
        )
        raise Mismatch(what, rows=(0, row))
    return [shape[0] for shape in shapes]


def _mask(lengths: list[int], rows: int, memory: Memory) -> Array:
    mask = memory.new((len(lengths), rows), BOOL)
    np.less(np.arange(rows), np.array(lengths)[:, None], out=mask)
    return mask
