"""Concat: rows of different lengths end to end, with offsets, and indices that follow their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.collate.collate import (
    INT64,
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
from infeed.collate.leaves import classify, describe
from infeed.collate.stack import concatenate, stack_numbers
from infeed.errors import LayoutError, PipelineError


@dataclass(frozen=True, repr=False)
class Concat(Collate):
    """Arrays end to end; numbers stacked; other objects in a list. What batches of graphs need.

    `axis={field: axis}`: where a field grows, if not along its first axis. `shift={field: other}`: the
    integers in `field` count rows of `other` within one sample, and are increased by where that sample's
    rows of `other` begin in the batch. All are increased: a -1 that means "none" must be dealt with before.

    Each concatenated field gets its offsets, `int64[B + 1]`: sample `i` lies in
    `[offsets[i], offsets[i + 1])`. They are the entry `<field>_offsets` when samples are dicts, otherwise
    the batch is `(batch, offsets)` with the offsets as a tuple in the order of their fields.

    >>> from infeed.collate import Heap
    >>> graph = {"x": np.array([0.5, 0.25]), "edges": np.array([[0, 1], [1, 0]])}
    >>> collate = Concat(shift={"edges": "x"}, axis={"edges": 1})
    >>> batch = collate([graph, graph], Heap())
    >>> batch["x"], batch["x_offsets"]
    (array([0.5 , 0.25, 0.5 , 0.25]), array([0, 2, 4]))
    >>> batch["edges"]
    array([[0, 1, 2, 3],
           [1, 0, 3, 2]])
    """

    shift: Mapping[str, str] = field(default_factory=dict)
    axis: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in ("shift", "axis"):
            given = getattr(self, option)
            if not isinstance(given, Mapping):
                raise PipelineError(f"Concat: `{option}` must be a dict by field; got {given!r}")
            object.__setattr__(self, option, dict(given))
        for name, axis in self.axis.items():
            if isinstance(axis, bool) or not isinstance(axis, int):
                raise PipelineError(f"Concat: `axis` of field {name!r} must be an int; got {axis!r}")

    def __call__(self, samples: list[Any], memory: Memory) -> Any:
        """The batch, with its offsets."""
        tree, columns = take_apart(lists_as_arrays(samples))
        names = unique_names(tree)
        check_names("Concat(axis=...)", self.axis, names)
        check_names("Concat(shift=...)", [*self.shift, *self.shift.values()], names)
        fields = {name: classify(column, name) for name, column in zip(names, columns, strict=True)}
        offsets = {
            name: self._offsets(leaves.values, name, memory)
            for name, leaves in fields.items()
            if leaves.kind == "arrays"
        }
        joined: dict[str, Any] = {}
        for name, leaves in fields.items():
            if name in offsets:
                joined[name] = self._join(leaves.values, int(offsets[name][-1]), name, memory)
            else:
                joined[name] = stack_numbers(leaves, name, memory) if leaves.dtype else leaves.values
        for name, other in self.shift.items():
            self._shift(name, joined[name], offsets.get(name), other, offsets.get(other))
        batch = tree.build([leaves.like_samples(joined[name]) for name, leaves in fields.items()])
        extras = {name: fields[name].like_samples(offset) for name, offset in offsets.items()}
        return attach(tree, batch, extras, "_offsets")

    def _offsets(self, arrays: list[Array], name: str, memory: Memory) -> Array:
        axis = self.axis.get(name, 0)
        try:
            lengths = [array.shape[axis] for array in arrays]
        except IndexError:
            shapes = [array.shape for array in arrays]
            row = next(row for row, shape in enumerate(shapes) if not -len(shape) <= axis < len(shape))
            what = f"{describe(name)}: row {row} has shape {shapes[row]}, without an axis {axis} to join along"
            raise Mismatch(what, rows=(row,)) from None
        offsets = memory.new((len(lengths) + 1,), INT64)
        offsets[0] = 0
        np.cumsum(lengths, out=offsets[1:])
        return offsets

    def _join(self, arrays: list[Array], total: int, name: str, memory: Memory) -> Array:
        axis = self.axis.get(name, 0)
        shape = list(arrays[0].shape)
        shape[axis] = total
        out = memory.new(tuple(shape), arrays[0].dtype)
        try:
            concatenate(arrays, axis, out, name)
        except Mismatch:
            raise
        except ValueError:
            # numpy compares the other axes itself; only the message is ours.
            raise _other_axes(name, [array.shape for array in arrays], axis) from None
        return out

    def _shift(self, name: str, values: Any, offsets: Array | None, other: str, starts: Array | None) -> None:
        """Increase `values` in place by the start of each sample's rows in `other`."""
        if starts is None:
            raise LayoutError(
                f"Concat: `shift` lets {describe(name)} follow the rows of {describe(other)}, which has no "
                "rows: it must hold arrays"
            )
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            kind = values.dtype if isinstance(values, np.ndarray) else "a list"
            raise LayoutError(f"Concat: only integers can be shifted, and {describe(name)} is {kind}")
        if starts[-1] - 1 > np.iinfo(values.dtype).max:
            raise LayoutError(
                f"Concat: the batch has {starts[-1]} rows of {describe(other)}, more than {values.dtype} in "
                f"{describe(name)} can count; make it int64 with a map, or use smaller batches"
            )
        steps = starts[:-1].astype(values.dtype)
        if offsets is not None:
            axis = range(values.ndim)[self.axis.get(name, 0)]
            steps = np.repeat(steps, np.diff(offsets))
            steps = steps.reshape((-1,) + (1,) * (values.ndim - 1 - axis))
        np.add(values, steps, out=values)


def _other_axes(name: str, shapes: Sequence[tuple[int, ...]], axis: int) -> Mismatch:
    """The error that names the first row that differs from row 0 in another axis than the joined one."""

    def others(shape: tuple[int, ...]) -> list[int]:
        kept = list(shape)
        kept[axis] = -1
        return kept

    row = next(row for row, shape in enumerate(shapes) if others(shape) != others(shapes[0]))
    what = (
        f"{describe(name)}: row 0 has shape {shapes[0]} and row {row} has shape {shapes[row]}; they are "
        f'joined along axis {axis}, so all others must be equal: use a map, another `axis`, or collate="list"'
    )
    return Mismatch(what, rows=(0, row))
