"""The general way: any object into the bytes of a slot, its arrays beside the pickle and never inside it.

    [ arrays, each on its own cache line ... | pickle of the structure ]

`encode` writes each array once. An array that was made inside the slot by `Region.new` is not written again.
`decode` gives arrays that look into the slot. Only a loader and its own worker processes use this, over
private descriptors; nothing from a file or from outside the program comes here.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from infeed.layout import aligned
from infeed.tensors import from_array, is_tensor, to_array

SMALL = 2048  # arrays up to here go inside the pickle: a kept label must not hold a slot


class Region:
    """Some bytes to write results into; a `Memory` for collates.

    >>> region = Region(np.zeros(4096, np.uint8))
    >>> a = region.new((400,), np.dtype("int64")); a[:] = 7
    >>> region.memory[:24].view("int64").tolist()
    [7, 7, 7]
    """

    __slots__ = ("address", "asked", "memory", "used")

    def __init__(self, memory: NDArray[np.uint8]):
        self.memory = memory
        self.address: int = memory.ctypes.data
        self.used = 0
        self.asked = 0

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array to fill, in the region while it has room, else on the heap."""
        array: NDArray[Any]
        nbytes = dtype.itemsize * math.prod(shape)
        if dtype.hasobject or nbytes <= SMALL:
            return np.empty(shape, dtype)
        self.asked += aligned(nbytes)
        if self.used + nbytes > self.memory.nbytes:
            return np.empty(shape, dtype)
        array = np.ndarray(shape, dtype, self.memory, self.used)
        self.used += aligned(nbytes)
        return array


class Encoded(NamedTuple):
    """Where an encoded object lies: `length` bytes of pickle at `start`; `total` bytes needed in all."""

    start: int
    length: int
    total: int


class _References:
    """Replaces arrays and tensors by references into the region; for either kind of pickler."""

    def __init__(self, file: io.BytesIO, region: Region):
        super().__init__(file, protocol=5)  # type: ignore[call-arg]
        self.region = region
        self.made_inside = region.used  # beyond this, what only lies nearby is no array of the region's
        self.copies: list[tuple[int, NDArray[Any]]] = []

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is np.ndarray or kind is np.memmap:
            return self._reference("a", obj)
        if kind in (dict, list, tuple, str, int, float):
            return None
        if is_tensor(obj):
            array = to_array(obj)
            return None if array is None else self._reference("t", array, smallest=0)
        return None

    def _reference(self, tag: str, array: NDArray[Any], smallest: int = SMALL) -> Any:
        if array.dtype.hasobject or (smallest and array.nbytes <= smallest and type(array) is np.ndarray):
            return None
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        region = self.region
        offset = array.__array_interface__["data"][0] - region.address
        if not 0 <= offset < self.made_inside:
            offset = region.used
            region.used += aligned(array.nbytes)
            self.copies.append((offset, array))
        dtype = array.dtype.str if array.dtype.isbuiltin == 1 else array.dtype
        return tag, offset, dtype, array.shape


class _Pickler(_References, pickle.Pickler):
    pass


def _dump(obj: Any, region: Region) -> tuple[memoryview, list[tuple[int, NDArray[Any]]]]:
    """Pickle `obj`; what plain pickle cannot name (lambdas, classes of a script) goes by value."""
    made_inside = region.used
    file = io.BytesIO()
    pickler: Any = _Pickler(file, region)
    try:
        pickler.dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        by_value = type("_ByValue", (_References, cloudpickle.Pickler), {})
        region.used, file = made_inside, io.BytesIO()
        pickler = by_value(file, region)
        pickler.dump(obj)
    return file.getbuffer(), pickler.copies


def encode(obj: Any, region: Region, spill: Callable[[int], NDArray[np.uint8]]) -> Encoded:
    """Write `obj` into the region, or, when it is too small, into what `spill(nbytes)` returns."""
    made_inside = region.used
    pickled, copies = _dump(obj, region)
    start, total = region.used, region.used + len(pickled)
    memory = region.memory
    if total > memory.nbytes:
        memory = spill(total)
        memory[:made_inside] = region.memory[:made_inside]
    for offset, array in copies:
        if array.nbytes:
            np.ndarray(array.shape, array.dtype, memory, offset)[...] = array
    memory[start:total] = np.frombuffer(pickled, np.uint8)
    return Encoded(start, len(pickled), total)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: NDArray[np.uint8]):
        super().__init__(file)
        self.memory = memory

    def persistent_load(self, pid: Any) -> Any:
        tag, offset, dtype, shape = pid
        array: NDArray[Any] = np.ndarray(shape, dtype, self.memory, offset)
        return from_array(array) if tag == "t" else array


def decode(where: Encoded, memory: NDArray[np.uint8]) -> Any:
    """The object; its arrays look into `memory` and keep it alive.

    >>> region = Region(np.zeros(10_000, np.uint8))
    >>> where = encode({"x": np.ones(1000), "name": "a"}, region, spill=lambda n: np.zeros(n, np.uint8))
    >>> back = decode(where, region.memory)
    >>> back["name"], back["x"].sum()
    ('a', np.float64(1000.0))
    """
    pickled = memory[where.start : where.start + where.length].tobytes()
    return _Unpickler(io.BytesIO(pickled), memory).load()
