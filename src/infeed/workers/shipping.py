"""Sends a recipe to worker processes once: its code by cloudpickle, its large arrays as one shared copy.

    Shipment  = pickle (one segment) + all large arrays end to end (one segment) + arrays that were shared
    already

Large numpy arrays and tensors are replaced by references, memory maps by the name of their file. A worker
maps the arrays copy-on-write: reading costs nothing, and a dataset that writes into its own arrays changes
only its own view, as after a fork.
"""

from __future__ import annotations

import importlib.util
import io
import mmap
import os
import pickle
import sys
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.errors import PipelineError
from infeed.layout import aligned
from infeed.slots.segments import Segment, SharedBlock, block_of, check_room
from infeed.tensors import from_array, is_tensor, to_array

LARGE = 1 << 16


@dataclass
class Shipment:
    """A recipe ready to be sent; keeps the memory for workers that come later."""

    pickled: Segment
    length: int
    arrays: Segment | None
    blocks: list[SharedBlock] = field(default_factory=list)

    def message(self) -> tuple[tuple[int, int, list[int]], tuple[int, ...]]:
        """What to send: sizes, and descriptors in the same order."""
        segments = [self.pickled] + ([self.arrays] if self.arrays else [])
        fds = tuple(s.fd for s in segments) + tuple(block.segment.fd for block in self.blocks)
        sizes = [block.segment.nbytes for block in self.blocks]
        return (self.length, self.arrays.nbytes if self.arrays else 0, sizes), fds

    def close(self) -> None:
        """Let go of the memory; workers that have mapped it keep it."""
        self.pickled.close()
        if self.arrays:
            self.arrays.close()


def pack(recipe: Any) -> Shipment:
    """Pickle a recipe; `PipelineError` that names what cannot be pickled."""
    import cloudpickle

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: io.BytesIO):
            super().__init__(file, protocol=5)
            self.large: list[tuple[int, NDArray[Any]]] = []
            self.used = 0
            self.blocks: list[SharedBlock] = []
            self._seen: dict[int, tuple[Any, Any]] = {}

        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, types.FunctionType | type):
                _by_value_if_hidden(obj.__module__)
                return None
            if isinstance(obj, np.ndarray) and obj.nbytes >= LARGE:
                return self._once(obj, obj, "array")
            if is_tensor(obj) and (array := to_array(obj)) is not None and array.nbytes >= LARGE:
                return self._once(obj, array, "tensor")
            return None

        def _once(self, obj: Any, array: NDArray[Any], tag: str) -> Any:
            if id(obj) not in self._seen:
                self._seen[id(obj)] = (obj, self._reference(array, tag))
            return self._seen[id(obj)][1]

        def _reference(self, array: NDArray[Any], tag: str) -> Any:
            mapped = _file_of(array)
            if mapped is not None:
                return "file", *mapped
            if type(array) not in (np.ndarray, np.memmap) or array.dtype.hasobject:
                return None
            shared = block_of(array)
            if shared is not None and array.flags.c_contiguous:
                block, offset = shared
                if block not in self.blocks:
                    self.blocks.append(block)
                return f"{tag} block", self.blocks.index(block), offset, array.dtype, array.shape
            offset, self.used = self.used, self.used + aligned(array.nbytes)
            self.large.append((offset, array))
            return tag, 0, offset, array.dtype, array.shape

    file = io.BytesIO()
    packer = Packer(file)
    try:
        packer.dump(recipe)
    except Exception as error:
        raise PipelineError(
            f"the pipeline cannot be sent to worker processes: {type(error).__name__}: {error}. "
            "Open files, locks, connections and generators inside worker_setup or at first use instead of "
            "keeping them in the dataset, or use start_method='fork' or mode='threads'"
        ) from error
    return _shipment(file.getbuffer(), packer)


def _shipment(pickled: memoryview, packer: Any) -> Shipment:
    check_room(packer.used + len(pickled), "the copy of the dataset's arrays that workers share")
    arrays = Segment.written(packer.large, packer.used) if packer.used else None
    text = Segment.written([(0, np.frombuffer(pickled, np.uint8))], len(pickled))
    return Shipment(text, len(pickled), arrays, packer.blocks)


_importable: dict[str, bool] = {}


def _by_value_if_hidden(module: str | None) -> None:
    """A module that a fresh interpreter would not find (a test file, a plug-in) goes by value."""
    import cloudpickle

    if not module or module == "__main__" or module not in sys.modules:
        return
    if module not in _importable:
        try:
            found = importlib.util.find_spec(module.partition(".")[0])
            _importable[module] = found is not None and _really_there(module)
        except (ImportError, ValueError, AttributeError):
            _importable[module] = False
        if not _importable[module]:
            cloudpickle.register_pickle_by_value(sys.modules[module])


def _really_there(module: str) -> bool:
    """Whether the loaded module is what an import by this name would give: look for its file on the path."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is None or file is None or getattr(top, "__spec__", None) is None:
        return True
    folder = os.path.dirname(os.path.abspath(file))
    if os.path.basename(file) == "__init__.py":
        folder = os.path.dirname(folder)
    places = {os.path.abspath(place or ".") for place in sys.path}
    return folder in places or not os.path.exists(file) or "site-packages" in folder or _is_editable(top)


def _is_editable(module: Any) -> bool:
    return module.__name__ == "infeed" or "-packages" in str(module.__spec__.origin)


def _file_of(array: NDArray[Any]) -> tuple[str, str, int, Any, Any] | None:
    """Name, mode, offset, dtype and shape of the part of a file that a memory map shows, if it is one."""
    if not array.flags.c_contiguous:
        return None
    root: Any = array
    while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
        return None
    offset = root.offset + array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return os.path.abspath(root.filename), str(root.mode), offset, array.dtype, array.shape


def unpack(sizes: tuple[int, int, list[int]], fds: list[int]) -> Any:
    """The recipe, in a worker; its arrays look into the shared copy. Descriptors are closed."""
    length, array_bytes, block_bytes = sizes
    text = _read(fds.pop(0), length)
    maps = [_private(fds.pop(0), array_bytes)] if array_bytes else []
    blocks = [SharedBlock(_keep(fd, nbytes)) for fd, nbytes in zip(fds, block_bytes, strict=True)]
    cache: dict[Any, Any] = {}

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            key = repr(pid)
            if key not in cache:
                cache[key] = self._make(*pid)
            return cache[key]

        def _make(self, tag: str, *rest: Any) -> Any:
            if tag == "file":
                name, mode, offset, dtype, shape = rest
                mode = "r" if mode == "r" else "r+"
                return np.memmap(name, dtype, mode, offset, shape)  # type: ignore[call-overload]
            number, offset, dtype, shape = rest
            memory = np.asarray(blocks[number]) if tag.endswith("block") else maps[number]
            array: NDArray[Any] = np.ndarray(shape, dtype, memory, offset)
            return from_array(array) if tag.startswith("tensor") else array

    return Unpacker(io.BytesIO(text)).load()


def _read(fd: int, length: int) -> bytes:
    try:
        return os.pread(fd, length, 0) if length < (1 << 30) else _private(os.dup(fd), length).tobytes()
    finally:
        os.close(fd)


def _private(fd: int, nbytes: int) -> NDArray[np.uint8]:
    try:
        mapping = mmap.mmap(fd, nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fd)
    return np.frombuffer(mapping, np.uint8)


def _keep(fd: int, nbytes: int) -> Segment:
    segment = Segment.attach(os.dup(fd), nbytes)
    segment.fd = fd
    return segment


def by_value(thing: Any) -> bytes:
    """A small object for workers; classes of the user's script in it go by value, since workers lack the script.

    >>> pickle.loads(by_value((1, 2)))
    (1, 2)
    """
    import cloudpickle

    return bytes(cloudpickle.dumps(thing, protocol=5))


def error_to_bytes(error: BaseException, trace: str) -> bytes:
    """An exception for another process, with its traceback as a note.

    As its own class pickles it, if that works; else by type, arguments and attributes; else as a `RuntimeError`.
    """
    notes = [*getattr(error, "__notes__", ())]
    kept = {key: value for key, value in error.__dict__.items() if key != "__notes__"}
    text = f"{type(error).__name__}: {error}"
    plain = {key: value for key, value in kept.items() if isinstance(value, str | bytes | int | float)}
    forms: list[Any] = [error, (type(error), error.args, kept), (type(error), error.args, plain)]
    forms.append((RuntimeError, (text,), {}))
    for form in forms:
        try:
            data = by_value((form, notes, trace))
            if str(error_from_bytes(data)) == str(error) or form is forms[-1]:
                return data
        except Exception:  # whatever the user's class does: the next form is simpler, and the last always works
            continue
    return by_value(((RuntimeError, (text,), {}), [], trace))


def error_from_bytes(data: bytes) -> BaseException:
    """The exception, with notes.

    >>> error = error_from_bytes(error_to_bytes(KeyError("a"), "trace"))
    >>> type(error).__name__, error.args
    ('KeyError', ('a',))
    """
    form, notes, trace = pickle.loads(data)
    if isinstance(form, BaseException):
        error = form
    else:
        kind, args, attributes = form
        error = BaseException.__new__(kind)
        error.args = args
        error.__dict__.update(attributes)
    error.__notes__ = [*notes, *([f"In the worker:\n{trace}"] if trace else [])]
    return error
