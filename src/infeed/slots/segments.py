"""One piece of memory: on the heap, or shared with other processes without a name.

    parent                               worker
    Segment.shared(n)  --- descriptor -->  Segment.attach(fd, n)
      memfd_create, posix_fallocate          mmap, MADV_POPULATE_WRITE

A shared segment has no name, so nothing is left behind however a process ends, and its size does not
depend on /dev/shm. Its memory is reserved before anyone writes: "no memory" is an exception here and
never a signal later. The mapping lives as long as any array that looks into it.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.errors import OutOfMemory, PipelineError

PAGE = mmap.PAGESIZE
_WRITE = 1 << 30
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14


class Segment:
    """Some bytes; `memory` looks into them.

    >>> segment = Segment.shared(100)
    >>> segment.memory[:3] = 7
    >>> other = Segment.attach(os.dup(segment.fd), 100)
    >>> other.memory[:3].tolist()
    [7, 7, 7]
    >>> segment.close(); other.close()
    """

    __slots__ = ("fd", "memory", "nbytes")

    def __init__(self, memory: NDArray[np.uint8], fd: int = -1):
        self.memory = memory
        self.nbytes = memory.nbytes
        self.fd = fd

    @staticmethod
    def heap(nbytes: int) -> Segment:
        """Private memory, aligned to cache lines."""
        try:
            block = np.empty(nbytes + 64, np.uint8)
        except MemoryError:
            raise OutOfMemory(f"no memory for a slot of {megabytes(nbytes)}") from None
        start = -block.ctypes.data % 64
        return Segment(block[start : start + nbytes])

    @staticmethod
    def shared(nbytes: int, *, reserve: bool = True) -> Segment:
        """Memory that other processes can map through `fd`."""
        if not hasattr(os, "memfd_create"):
            raise PipelineError("worker processes need memfd_create (Linux); use mode='threads' on this system")
        nbytes = max(PAGE, -(-nbytes // PAGE) * PAGE)
        fd = os.memfd_create("infeed", os.MFD_CLOEXEC)
        try:
            if reserve:
                os.posix_fallocate(fd, 0, nbytes)
            else:
                os.ftruncate(fd, nbytes)
            return Segment(_mapped(fd, nbytes), fd)
        except OSError as error:
            os.close(fd)
            raise _named(error, nbytes) from None

    @staticmethod
    def written(parts: Sequence[tuple[int, NDArray[Any]]], nbytes: int) -> Segment:
        """Shared memory with these arrays at these offsets. Nothing is mapped, so `memory` is empty.

        The bytes go through `write`, which fills pages of the kernel without first mapping and clearing them.
        """
        segment = Segment.shared(nbytes, reserve=False)
        segment.memory = np.empty(0, np.uint8)
        try:
            for start, array in parts:
                left = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                while len(left):
                    done = os.pwrite(segment.fd, left[:_WRITE], start)
                    left, start = left[done:], start + done
        except OSError as error:
            segment.close()
            raise _named(error, nbytes) from None
        return segment

    @staticmethod
    def attach(fd: int, nbytes: int, *, populate: bool = False, writable: bool = True) -> Segment:
        """The segment behind a descriptor that another process sent; the descriptor is closed."""
        try:
            return Segment(_mapped(fd, nbytes, populate=populate, writable=writable))
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptor. The memory goes when the last array that looks into it goes."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _named(error: OSError, nbytes: int) -> Exception:
    """What the system means by it."""
    if error.errno in (errno.ENOMEM, errno.ENOSPC):
        return OutOfMemory(f"the system has no {megabytes(nbytes)} of shared memory left")
    return error


def _mapped(fd: int, nbytes: int, *, populate: bool = False, writable: bool = True) -> NDArray[np.uint8]:
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    mapping = mmap.mmap(fd, nbytes, mmap.MAP_SHARED, access)
    if populate:
        try:
            mapping.madvise(_POPULATE_WRITE)
        except OSError:
            pass  # an older kernel: pages are then mapped at their first touch
    return np.frombuffer(mapping, np.uint8)


def share(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of `array` in memory that worker processes map instead of getting a copy of their own.

    Make a large dataset this way (or fill it in place) and let go of the original: then there is one copy
    on the machine, whatever the number of workers.

    >>> x = share(np.arange(6.0).reshape(2, 3))
    >>> x.sum()
    np.float64(15.0)
    """
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise PipelineError(f"an array of dtype {array.dtype} holds Python objects, which cannot be shared")
    check_room(array.nbytes, "the shared array")
    segment = Segment.written([(0, array)], array.nbytes)
    segment.memory = _mapped(segment.fd, segment.nbytes)
    return np.ndarray(array.shape, array.dtype, np.asarray(SharedBlock(segment)))


def shared_if_large(array: NDArray[Any], least: int = 1 << 16) -> NDArray[Any]:
    """A large array in memory that workers map; a small one, or one on a system without such memory, as it is.

    >>> shared_if_large(np.arange(3))
    array([0, 1, 2])
    """
    if array.nbytes < least or not hasattr(os, "memfd_create"):
        return array
    return share(array)


class SharedBlock:
    """Keeps the descriptor of a shared array, so that the array can be sent to workers without a copy."""

    def __init__(self, segment: Segment):
        self.segment = segment
        self.__array_interface__ = dict(segment.memory.__array_interface__)

    def __del__(self) -> None:
        self.segment.close()


def block_of(array: NDArray[Any]) -> tuple[SharedBlock, int] | None:
    """The shared block that `array` looks into and its offset there, if it was made by `share`."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, SharedBlock):
        return None
    return base, array.__array_interface__["data"][0] - base.segment.memory.ctypes.data


def megabytes(nbytes: int) -> str:
    """A size for people.

    >>> megabytes(3_500_000)
    '3.5 MB'
    """
    if nbytes < 1_000_000:
        return f"{nbytes / 1e3:.1f} kB"
    return f"{nbytes / 1e6:.1f} MB" if nbytes < 1_000_000_000 else f"{nbytes / 1e9:.2f} GB"


def free_memory() -> int:
    """Bytes that can still be taken: what the kernel calls available, within the container's limit.

    >>> free_memory() > 0
    True
    """
    available = 1 << 62
    with _unreadable_is_no_limit():
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    for limit, usage in _container_limits():
        available = min(available, max(0, limit - usage))
    return available


def _container_root() -> Path:
    return Path("/sys/fs/cgroup")


def _container_limits() -> Iterator[tuple[int, int]]:
    """(limit, usage) of the control group, version 2 then version 1."""
    root = _container_root()
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with _unreadable_is_no_limit():
            text = (root / limit).read_text().strip()
            if text != "max":
                yield int(text), int((root / usage).read_text())


@contextmanager
def _unreadable_is_no_limit() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):
        pass


def check_room(nbytes: int, what: str) -> None:
    """`OutOfMemory` when `nbytes` more would not fit: the kernel kills rather than refuses."""
    free = free_memory()
    if nbytes > free:
        raise OutOfMemory(
            f"{what} needs {megabytes(nbytes)}, and {megabytes(free)} are free; "
            "use smaller batches, a smaller prefetch, or fewer iterations per step"
        )
