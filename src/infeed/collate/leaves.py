"""What the leaves of one field are, over the samples of a batch: numbers, arrays or other objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from infeed.collate.collate import Array, Mismatch
from infeed.tensors import from_array, is_tensor, to_array

NUMBERS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
"""The dtype of each kind of Python number; subclasses (enums) are objects."""
DTYPE_ADVICE = "nothing is cast silently: give every row the same dtype with a map"


class Leaves(NamedTuple):
    """One field over the samples of a batch.

    `numbers`: values of one dtype without dimensions. `arrays`: numpy arrays with at least one dimension
    in row 0, whose shapes and dtypes are still to be compared. `objects`: everything else. `tensor` says
    that the arrays were tensors in the samples, so that the batch must hold tensors too.

    >>> Leaves("numbers", [1, 2], np.dtype("int64")).kind
    'numbers'
    """

    kind: Literal["numbers", "arrays", "objects"]
    values: list[Any]
    dtype: np.dtype[Any] | None = None
    tensor: bool = False

    def like_samples(self, array: Array) -> Any:
        """An array of the batch, as a tensor that looks into it where the samples had tensors."""
        return from_array(array) if self.tensor else array


def classify(column: list[Any], name: str, strict: bool = True) -> Leaves:
    """What the leaves in `column`, the field `name`, are.

    A field that is a number, an array or a tensor in some rows and something else in others is refused,
    and so are numbers of different dtypes, because the batch would be of another type from step to step.
    With `strict=False` these are objects.

    >>> classify([1.0, 2.0], "x")
    Leaves(kind='numbers', values=[1.0, 2.0], dtype=dtype('float64'), tensor=False)
    >>> classify(["cat", "dog"], "x").kind
    'objects'
    >>> classify([1.0, None], "x", strict=False).kind
    'objects'
    """
    types = set(map(type, column))
    if len(types) == 1:
        only = next(iter(types))
        if only is np.ndarray and column[0].ndim and not column[0].dtype.hasobject:
            return Leaves("arrays", column)
        dtype = NUMBERS.get(only)
        if dtype is None and issubclass(only, np.number | np.bool_):
            dtype = np.dtype(only)
        if dtype is not None:
            return Leaves("numbers", column, dtype)
    _refuse_containers(types, column, name)
    return _classify_slowly(column, name, strict)


def _classify_slowly(column: list[Any], name: str, strict: bool) -> Leaves:
    """As `classify`, one leaf at a time: for rows of several types, and for all but the usual ones."""
    arrays = [as_array(leaf) for leaf in column]
    found = [array for array in arrays if array is not None]
    if not found:
        return Leaves("objects", list(column))
    kinds = [_kind(leaf, array) for leaf, array in zip(column, arrays, strict=True)]
    if len(set(kinds)) == 1:
        tensor = kinds[0] == "tensor"
        if any(array.ndim for array in found):
            return Leaves("arrays", found, tensor=tensor)
        if len({array.dtype for array in found}) == 1:
            return Leaves("numbers", found, found[0].dtype, tensor)
    if not strict:
        return Leaves("objects", list(column))
    if len(set(kinds)) == 1:
        raise unequal(name, found, "dtype", DTYPE_ADVICE)
    row = next(row for row, kind in enumerate(kinds) if kind != kinds[0])
    what = (
        f"{describe(name)}: row 0 is {_a_type(column[0])} and row {row} is {_a_type(column[row])}; a field "
        "must be a number or array, a tensor, or another object in all rows alike: replace the odd ones "
        'with a map, or use collate="list"'
    )
    raise Mismatch(what, rows=(0, row))


def _kind(leaf: Any, array: Array | None) -> Literal["object", "tensor", "array"]:
    if array is None:
        return "object"
    return "tensor" if is_tensor(leaf) else "array"


def as_array(leaf: Any) -> Array | None:
    """The leaf as a numpy array, without a copy where it has memory; `None` when it is no number or array.

    CPU tensors count as arrays. Strings, arrays of objects and masked arrays do not: stacked they would be
    cut, could not be shared between processes, or would lose their mask.

    >>> as_array(True)
    array(True)
    >>> as_array("cat") is None
    True
    """
    dtype = NUMBERS.get(type(leaf))
    if dtype is not None:
        try:
            return np.array(leaf, dtype)
        except OverflowError:
            return None
    if is_tensor(leaf):
        return to_array(leaf)
    if isinstance(leaf, str | bytes) or not isinstance(leaf, np.ndarray | np.generic):
        return None
    if leaf.dtype.hasobject or isinstance(leaf, np.ma.MaskedArray):
        return None
    return np.asarray(leaf)


def unequal(name: str, arrays: Sequence[Array], what: Literal["shape", "dtype"], advice: str) -> Mismatch:
    """The error that names the first row whose shape or dtype differs from that of row 0.

    >>> print(unequal("x", [np.zeros(2), np.zeros(3)], "shape", "use a map"))
    field 'x': row 0 has shape (2,) and row 1 has shape (3,); use a map
    """
    values = [getattr(array, what) for array in arrays]
    row = next((row for row, value in enumerate(values) if value != values[0]), 0)
    message = f"{describe(name)}: row 0 has {what} {values[0]} and row {row} has {what} {values[row]}; {advice}"
    return Mismatch(message, rows=(0, row))


def describe(name: str) -> str:
    """How messages speak of a field; a sample that is a bare leaf has no name.

    >>> describe("box.0"), describe("")
    ("field 'box.0'", 'the sample')
    """
    return f"field {name!r}" if name else "the sample"


def _a_type(leaf: Any) -> str:
    return "None" if leaf is None else f"of type {type(leaf).__name__}"


def _refuse_containers(types: set[type], column: list[Any], name: str) -> None:
    """Row 0 is a leaf here, so a container in another row is another structure."""
    containers = {kind for kind in types if issubclass(kind, dict | tuple | list) or is_dataclass(kind)}
    for row, leaf in enumerate(column) if containers else ():
        if type(leaf) in containers:
            what = (
                f"row {row} has another structure than row 0: {describe(name)} is {_a_type(column[0])} in "
                f"row 0 and a {type(leaf).__name__} in row {row}; make them alike with a map, or give a "
                "collate function of your own"
            )
            raise Mismatch(what, rows=(0, row))
