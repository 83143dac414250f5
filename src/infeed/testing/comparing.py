"""Whether two batches are the same to the last bit, and where they differ if they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.tensors import is_tensor, to_array


def difference(first: Any, second: Any, name: str = "") -> str:
    """What is different between two batches or samples, in words; empty when they are the same.

    The same means: equal structure, types and dtypes, and equal bytes, so that `-0.0` is not `0.0` and a NaN
    is equal to itself. Objects that do not say when they are equal are compared by their attributes.

    >>> difference({"x": np.array([1, 2])}, {"x": np.array([1, 2])})
    ''
    >>> difference({"x": np.array([1, 2, 3])}, {"x": np.array([1, 5, 3])})
    'x: row 1 is 2 and 5'
    >>> difference((1, "a"), (1.0, "a"))
    '0: is a int and a float'
    """
    if type(first) is not type(second):
        return _told(name, f"is a {type(first).__name__} and a {type(second).__name__}")
    if isinstance(first, np.ndarray | np.generic):
        return _of_arrays(np.asarray(first), np.asarray(second), name)
    if is_tensor(first):
        return _of_tensors(first, second, name)
    if isinstance(first, dict):
        if list(first) != list(second):
            return _told(name, f"has the keys {list(first)} and {list(second)}")
        return _of_parts(((key, first[key], second[key]) for key in first), name)
    if isinstance(first, list | tuple):
        if len(first) != len(second):
            return _told(name, f"has {len(first)} and {len(second)} entries")
        keys = getattr(first, "_fields", range(len(first)))
        return _of_parts(zip(keys, first, second, strict=True), name)
    return _of_objects(first, second, name)


def _told(name: str, what: str) -> str:
    return f"{name}: {what}" if name else what


def _of_parts(parts: Iterable[tuple[Any, Any, Any]], name: str) -> str:
    """The first difference among the named parts of two containers."""
    for key, mine, other in parts:
        found = difference(mine, other, f"{name}.{key}" if name else str(key))
        if found:
            return found
    return ""


def _of_arrays(first: NDArray[Any], second: NDArray[Any], name: str) -> str:
    if first.dtype != second.dtype or first.shape != second.shape:
        kinds = [f"{array.dtype}{list(array.shape)}" for array in (first, second)]
        return _told(name, f"is {kinds[0]} and {kinds[1]}")
    if first.dtype.hasobject:
        return difference(first.tolist(), second.tolist(), name)
    if first.tobytes() == second.tobytes():
        return ""
    if not first.ndim:
        return _told(name, f"is {first} and {second}")
    row = next(row for row in range(len(first)) if first[row].tobytes() != second[row].tobytes())
    if first.ndim == 1:
        return _told(name, f"row {row} is {first[row]} and {second[row]}")
    return _told(name, f"row {row} differs: {_start(first[row])} and {_start(second[row])}")


def _start(row: NDArray[Any]) -> str:
    """The first few numbers of a row."""
    return np.array2string(row.ravel()[:4]) + ("..." if row.size > 4 else "")


def _of_tensors(first: Any, second: Any, name: str) -> str:
    mine, other = to_array(first), to_array(second)
    if mine is not None and other is not None:
        return _of_arrays(mine, other, name)
    kinds = [(tensor.dtype, tuple(tensor.shape), str(tensor.device)) for tensor in (first, second)]
    if kinds[0] != kinds[1]:
        return _told(name, f"is {kinds[0]} and {kinds[1]}")
    return "" if bool((first == second).all()) else _told(name, "differs")


def _of_objects(first: Any, second: Any, name: str) -> str:
    if dataclasses.is_dataclass(first):
        keys = [field.name for field in dataclasses.fields(first)]
        return _of_parts(((key, getattr(first, key), getattr(second, key)) for key in keys), name)
    if "__eq__" not in {name for kind in type(first).__mro__[:-1] for name in vars(kind)}:
        return difference(getattr(first, "__dict__", {}), getattr(second, "__dict__", {}), name)
    same = first == second or (first != first and second != second)  # a NaN
    return "" if same else _told(name, f"is {first!r} and {second!r}")
