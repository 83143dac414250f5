"""What a collate is: it makes one batch of a list of samples, in memory that is handed to it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from infeed.errors import LayoutError, PipelineError
from infeed.trees import StructureMismatch, Tree

Array = NDArray[Any]
INT64 = np.dtype(np.int64)


class Memory(Protocol):
    """Where the arrays of a batch are made.

    Called by the worker that collates, once for each array of the batch. A collate puts the very array
    it was given into the batch, or a tensor that looks into it, so its owner can recognise it there.

    >>> Heap().new((2, 3), np.dtype("float32")).shape
    (2, 3)
    """

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised C-contiguous array: in the slot when it has room, else on the heap."""
        ...


@dataclasses.dataclass(frozen=True)
class Heap:
    """Ordinary memory.

    >>> Heap().new((4,), np.dtype("int64")).dtype
    dtype('int64')
    """

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array of its own."""
        return np.empty(shape, dtype)


class Collate(ABC):
    """Makes one batch of a list of samples.

    A kind is a frozen dataclass of plain settings, so it travels to workers and prints short. The batch
    depends on the samples alone.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class First(Collate):
    ...     count: int = 1
    ...     def __call__(self, samples, memory):
    ...         return samples[: self.count]
    >>> First(), First(count=2)
    (First(), First(count=2))
    >>> First(count=2)([7, 8, 9], Heap())
    [7, 8]
    """

    @abstractmethod
    def __call__(self, samples: list[Any], memory: Memory) -> Any:
        """The batch of these samples; `LayoutError` when they do not fit together."""

    def __repr__(self) -> str:
        """Only the settings that were changed."""
        shown = []
        settings: dict[str, dataclasses.Field[Any]] = getattr(self, "__dataclass_fields__", {})
        for name, setting in settings.items():
            made = setting.default_factory
            default = setting.default if made is dataclasses.MISSING else made()
            value = getattr(self, name)
            if value != default:
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Mismatch(LayoutError):
    """Rows of a batch that do not fit together.

    `rows` counts within the batch; who knows which samples these were can add a note.

    >>> Mismatch("row 0 is long and row 3 is short", rows=(0, 3)).rows
    (0, 3)
    """

    def __init__(self, what: str, rows: tuple[int, ...]):
        super().__init__(what)
        self.what = what
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone, and workers send their errors home.
        return type(self), (self.what, self.rows)


def take_apart(samples: Sequence[Any]) -> tuple[Tree, list[list[Any]]]:
    """The structure of the first sample, and the values of each leaf over all samples.

    >>> tree, columns = take_apart([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
    >>> tree.names, columns
    (('x', 'y'), [[1, 2], ['a', 'b']])
    """
    if not samples:
        raise LayoutError("there are no samples to make a batch of; give at least one")
    tree = Tree.of(samples[0])
    try:
        return tree, tree.columns(samples)
    except StructureMismatch as error:
        what = (
            f"row {error.row} has another structure than row 0: {error.what}; "
            "make them alike with a map, or give a collate function of your own"
        )
        raise Mismatch(what, rows=(0, error.row)) from None


def lists_as_arrays(samples: list[Any]) -> list[Any]:
    """The samples with lists of numbers, such as token ids, as arrays; other lists are structure.

    >>> lists_as_arrays([{"ids": [3, 5, 1], "name": "a"}])
    [{'ids': array([3, 5, 1]), 'name': 'a'}]
    """
    if samples and _has_number_lists(samples[0]):
        return [_with_arrays(sample) for sample in samples]
    return samples


def _has_number_lists(sample: Any) -> bool:
    if isinstance(sample, list) and _only_numbers(sample):
        return True
    parts = sample.values() if isinstance(sample, dict) else sample if isinstance(sample, tuple | list) else ()
    return any(map(_has_number_lists, parts))


def _only_numbers(values: list[Any]) -> bool:
    return set(map(type, values)) <= {bool, int, float}


def _with_arrays(sample: Any) -> Any:
    if isinstance(sample, list) and _only_numbers(sample):
        return np.array(sample, None if sample else np.int64)
    if isinstance(sample, dict):
        return {key: _with_arrays(value) for key, value in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*map(_with_arrays, sample))
    return type(sample)(map(_with_arrays, sample)) if type(sample) in (tuple, list) else sample


def unique_names(tree: Tree) -> tuple[str, ...]:
    """The names of the leaves, for a collate that finds fields by name.

    >>> unique_names(Tree.of({"x": 1, "y": {"z": 2}}))
    ('x', 'y.z')
    """
    names = tree.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LayoutError(f"two fields of a sample are both called {twice!r}; rename one of them")
    return names


def check_names(option: str, given: Collection[str], names: Sequence[str]) -> None:
    """`PipelineError` when an option speaks of a field that the samples do not have.

    >>> check_names("Pad(fields)", ["x"], ("x", "y"))
    """
    for name in given:
        if name not in names:
            known = ", ".join(repr(name) for name in names) or "none"
            raise PipelineError(f"{option} names the field {name!r}, but the fields of a sample are: {known}")


def attach(tree: Tree, batch: Any, extras: dict[str, Any], suffix: str) -> Any:
    """The batch with an extra array for some of its fields.

    Of dict samples, the extra of field `x` becomes the entry `x<suffix>`; a dict is the only sample that
    can grow. Of all others, the result is `(batch, extras)`, the extras as a tuple in the order of their
    fields.

    >>> attach(Tree.of({"x": 0}), {"x": [5]}, {"x": np.ones(1)}, "_mask")
    {'x': [5], 'x_mask': array([1.])}
    >>> attach(Tree.of((0, 0)), ([5], [6]), {"1": np.ones(1)}, "_mask")
    (([5], [6]), (array([1.]),))
    """
    if tree.kind != "dict":
        return batch, tuple(extras.values())
    for name, extra in extras.items():
        key = name + suffix
        if key in batch:
            raise LayoutError(
                f"the batch gets an entry {key!r} for the field {name!r}, but the samples have a field "
                "of that name; rename one of the two fields of the samples"
            )
        batch[key] = extra
    return batch
