"""The kinds of columns `arrays` is made of: arrays, strings, rows of different sizes, accessors."""

from __future__ import annotations

import array
import dataclasses
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from infeed.errors import LayoutError, PipelineError
from infeed.sources.source import Column, IntArray, Rows, Source
from infeed.sources.strings import Strings


class ArrayColumn(Column):
    """The rows of one numpy array or memory map, whatever its strides and byte order.

    >>> ArrayColumn(np.arange(6).reshape(3, 2)).take(np.array([2, 0]))
    array([[4, 5],
           [0, 1]])
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __init__(self, array: NDArray[Any]):
        self.array = array
        self.dtype = array.dtype.newbyteorder("=")
        self.shape = array.shape[1:]

    def __len__(self) -> int:
        return len(self.array)

    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> NDArray[Any]:
        array = np.asarray(self.array)
        flags = array.flags
        # np.take first copies the whole of an array that is not contiguous; indexing does not
        if flags.c_contiguous and flags.aligned and array.dtype == self.dtype:
            # mode="raise" would buffer the whole output; the indices are known to be in range
            return np.take(array, indices, axis=0, out=out, mode="clip")
        if out is None:
            return array[indices].astype(self.dtype, copy=False)
        out[...] = array[indices]
        return out


class StringColumn(Column):
    """Strings as plain Python `str` or `bytes`.

    >>> StringColumn(Strings(["a", "b"])).take(np.array([1, 0]))
    ['b', 'a']
    """

    dtype = None
    shape = None

    def __init__(self, strings: Strings[Any] | NDArray[Any]):
        self.strings = strings

    def __len__(self) -> int:
        return len(self.strings)

    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> list[Any]:
        if isinstance(self.strings, Strings):
            return self.strings.__getitems__(indices)
        return cast(list[Any], self.strings[indices].tolist())

    @property
    def summary(self) -> str:
        if isinstance(self.strings, Strings):
            return "str" if self.strings.text else "bytes"
        return "bytes" if self.strings.dtype.kind == "S" else "str"


class ListColumn(Column):
    """Rows that are no block: arrays of different sizes, or any objects.

    >>> ListColumn([[1, 2], [3]]).take(np.array([1, 0]))
    [array([3]), array([1, 2])]
    """

    dtype = None
    shape = None

    def __init__(self, rows: list[Any]):
        self.rows = [as_row(row) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> list[Any]:
        rows = [self.rows[index] for index in indices.tolist()]
        # copies, so that a map that works in place cannot reach the user's own data
        return [row.copy() if isinstance(row, np.ndarray) else row for row in rows]


class AccessorColumn(Column):
    """Rows that an object of the user's gives for an array of indices.

    >>> class Thirds:
    ...     def __len__(self):
    ...         return 9
    ...     def __getitem__(self, indices):
    ...         return indices / 3
    >>> AccessorColumn(Thirds(), "x").take(np.array([6, 3]))
    array([2., 1.])
    """

    def __init__(self, accessor: Any, name: str):
        self.accessor = accessor
        self.name = name
        self.dtype, self.shape = _declared(accessor)

    def __len__(self) -> int:
        return len(self.accessor)

    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> Rows:
        # a copy of the indices is the accessor's to keep or change
        rows = self.accessor[indices.copy()]
        if not hasattr(rows, "__len__") or len(rows) != len(indices):
            came = f"{len(rows)} rows" if hasattr(rows, "__len__") else type(rows).__name__
            raise LayoutError(
                f"the accessor of {_field(self.name)} was asked for {len(indices)} rows and returned {came}; "
                "its __getitem__ must take an array of indices and return one row for each"
            )
        if self.dtype is not None:
            return self._fixed(rows, out)
        if is_tensor(rows):
            return cast(NDArray[Any], rows.numpy())
        if isinstance(rows, np.ndarray) and rows.dtype.kind not in "OUST":
            return rows
        return [as_row(row) for row in rows]

    def _fixed(self, rows: Any, out: NDArray[Any] | None) -> NDArray[Any]:
        block = np.asarray(rows)
        if block.dtype != self.dtype or block.shape[1:] != self.shape:
            raise LayoutError(
                f"the accessor of {_field(self.name)} says its rows are {self.summary} and returned "
                f"{block.dtype}{list(block.shape[1:])}; let its dtype and shape say what it returns"
            )
        if out is None:
            return block
        np.copyto(out, block, casting="no")
        return out


def as_column(data: Any, name: str) -> Column:
    """The kind of column that fits `data`; `name` is the field, for messages.

    >>> as_column([[1, 2], [3, 4]], "x").summary
    'int64[2]'
    >>> as_column(["a", "b"], "x").summary
    'str'
    """
    if is_tensor(data):
        data = _numpy_of(data, name)
    elif hasattr(data, "iloc") and hasattr(data, "to_numpy"):
        data = data.to_numpy()  # a data frame or series: its own indexing goes by label, not by position
    if isinstance(data, np.ndarray):
        return _of_array(data, name)
    if isinstance(data, Strings):
        return StringColumn(data)
    if isinstance(data, list | tuple | range | array.array):
        return _of_list(list(data), name)
    if isinstance(data, Source):
        raise PipelineError(f"{_field(name)} is a source; put sources side by side with infeed.zip")
    refused = isinstance(data, dict | str | bytes)
    if refused or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        hint = "; write arrays(**fields) for a dict of arrays" if isinstance(data, dict) else ""
        raise PipelineError(
            f"{_field(name)} is of type {type(data).__name__}; arrays takes numpy arrays, memory maps, tensors, "
            f"lists, and objects with __len__ and a __getitem__ that takes an array of indices{hint}"
        )
    return AccessorColumn(data, name)


def _of_array(data: NDArray[Any], name: str) -> Column:
    if data.ndim == 0:
        raise PipelineError(f"{_field(name)} is a single number; it needs one row per sample")
    if isinstance(data, np.ma.MaskedArray):
        raise PipelineError(f"{_field(name)} is a masked array; pass data.filled(value), and the mask as a field")
    if not isinstance(data, np.memmap):
        data = np.asarray(data)
    if data.dtype.kind in "UST" and data.ndim == 1:
        return StringColumn(data)
    if data.dtype.hasobject:
        return _of_objects(list(data), name)
    return ArrayColumn(data)


def _of_list(rows: list[Any], name: str) -> Column:
    kinds = set(map(type, rows))
    if kinds and (kinds <= {str} or kinds <= {bytes}):
        return StringColumn(Strings(rows))
    if kinds & {str, bytes}:
        return _of_objects(rows, name)  # numpy would make strings of the numbers among them
    try:
        block = np.array([row.numpy() if is_tensor(row) else row for row in rows])
    except ValueError:  # numpy's word for rows of different sizes
        return _of_objects(rows, name)
    if block.dtype.hasobject:
        return _of_objects(rows, name)
    return ArrayColumn(block)


def _of_objects(rows: list[Any], name: str) -> Column:
    for index, row in enumerate(rows):
        nested = isinstance(row, dict) or (dataclasses.is_dataclass(row) and not isinstance(row, type))
        if nested:
            raise PipelineError(
                f"row {index} of {_field(name)} is of type {type(row).__name__}; arrays takes one column per "
                "field: pass the fields apart, or use infeed.source for a list of whole samples"
            )
    return ListColumn(rows)


def as_row(row: Any) -> Any:
    """A row as a leaf of a sample: nested lists and tensors become arrays, the rest stays.

    >>> as_row([1, 2]), as_row("text")
    (array([1, 2]), 'text')
    """
    if isinstance(row, list | tuple):
        try:
            return np.array(row)
        except ValueError:
            parts = np.empty(len(row), object)
            for position, part in enumerate(row):
                parts[position] = as_row(part)
            return parts
    return row.numpy() if is_tensor(row) else row


def is_tensor(data: Any) -> bool:
    """Whether `data` is a tensor of some framework that can show itself as a numpy array.

    >>> is_tensor(np.zeros(3))
    False
    """
    return hasattr(data, "numpy") and hasattr(data, "shape") and not isinstance(data, type)


def _numpy_of(tensor: Any, name: str) -> NDArray[Any]:
    try:
        return cast(NDArray[Any], tensor.numpy())
    except (TypeError, RuntimeError) as error:
        raise PipelineError(
            f"{_field(name)} is a tensor that has no numpy form ({error}); pass it as a plain tensor on the "
            "CPU, detached, in a dtype that numpy knows"
        ) from error


def _declared(accessor: Any) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None]:
    """Dtype and row shape of an accessor that says them, as HDF5 and chunked arrays do."""
    dtype, shape = getattr(accessor, "dtype", None), getattr(accessor, "shape", None)
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple) or not shape:
        return None, None
    if dtype.hasobject or dtype.kind in "UST" or not dtype.isnative:
        return None, None
    return dtype, tuple(map(int, shape[1:]))


def _field(name: str) -> str:
    return f"field {name!r}" if name else "the array"
