"""The right to read a slot; it ends by itself when the last array that looks into the slot is gone.

numpy keeps the object that offered `__array_interface__` alive as the base of every view, so the lease
dies with the last of them. That can happen in any thread, inside a garbage collection or at exit: the end
of a lease takes no lock, it only puts the slot into a `SimpleQueue`. The lease owns the slot's mapping, so a
closed loader never pulls memory from under a kept array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from infeed.slots.arena import Slot


class Lease:
    """Holds one slot until the last array made from `arrays()` is gone.

    >>> from infeed.slots import Arena
    >>> arena = Arena(shared=False)
    >>> slot = arena.new(64)
    >>> memory = Lease(slot).memory()
    >>> arena.take() is None
    True
    >>> del memory
    >>> arena.take() is slot
    True
    """

    __slots__ = ("__array_interface__", "slot")

    def __init__(self, slot: Slot):
        self.slot = slot
        self.__array_interface__: dict[str, Any] = slot.interface

    def memory(self) -> NDArray[np.uint8]:
        """The bytes of the slot, as an array that keeps this lease."""
        return np.asarray(self)

    def __del__(self) -> None:
        self.slot.freed.put(self.slot)
