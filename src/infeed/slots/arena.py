"""The arena owns the slots of one loader: makes them, counts them, and learns which are free again."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

from infeed.slots.segments import Segment, check_room


class _Nowhere:
    """Takes the place of the queue when the arena is closed."""

    def put(self, slot: Slot) -> None:
        """A lease has ended, and nobody wants the slot."""


NOWHERE = _Nowhere()


class Slot:
    """One reusable piece of memory that holds one batch, or several small ones that follow each other."""

    __slots__ = ("freed", "interface", "number", "segment")

    def __init__(self, number: int, segment: Segment, freed: SimpleQueue[Slot] | _Nowhere):
        self.number = number
        self.segment = segment
        self.freed = freed
        self.interface: dict[str, Any] = dict(segment.memory.__array_interface__)

    @property
    def nbytes(self) -> int:
        """How many bytes it holds."""
        return self.segment.nbytes

    def release(self) -> None:
        """Give the slot back without a lease ever having been handed out."""
        self.freed.put(self)


class Arena:
    """The slots of one loader, all of one size class; larger ones are made when batches grow.

    >>> arena = Arena(shared=False)
    >>> slot = arena.new(1000)
    >>> slot.release()
    >>> arena.take() is slot
    True
    """

    def __init__(self, *, shared: bool):
        self.shared = shared
        self.slots: dict[int, Slot] = {}
        self.wanted = 0
        self._freed: SimpleQueue[Slot] = SimpleQueue()
        self._idle: list[Slot] = []
        self._made = 0
        self._retired: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all slots together."""
        return sum(slot.nbytes for slot in self.slots.values())

    @property
    def free(self) -> int:
        """How many slots have come free, at least; more may do so at any moment."""
        return self._freed.qsize() + len(self._idle)

    def new(self, nbytes: int) -> Slot:
        """One more slot; `OutOfMemory` where the machine or the container has no room for it."""
        self.wanted = max(self.wanted, nbytes)
        check_room(nbytes, "one more slot")
        segment = Segment.shared(nbytes) if self.shared else Segment.heap(nbytes)
        slot = Slot(self._made, segment, self._freed)
        self._made += 1
        self.slots[slot.number] = slot
        return slot

    def take(self) -> Slot | None:
        """A free slot, or None. Slots that have become too small are let go on the way."""
        while True:
            try:
                while True:
                    self._idle.append(self._freed.get_nowait())
            except Empty:
                pass
            if not self._idle:
                return None
            slot = self._idle.pop()  # the last to come free, which may still be in the cache
            if slot.number not in self.slots:
                continue  # closed, or retired while a lease was out
            if slot.nbytes >= self.wanted:
                return slot
            del self.slots[slot.number]
            slot.segment.close()
            slot.freed = NOWHERE
            self._retired.append(slot.number)

    def retired(self) -> list[int]:
        """Numbers of the slots let go since the last call, so that workers can unmap them."""
        gone, self._retired = self._retired, []
        return gone

    def close(self) -> None:
        """Forget all slots; memory that someone still looks into stays until they are done."""
        for slot in self.slots.values():
            slot.segment.close()
            slot.freed = NOWHERE  # a slot and the queue it lies in would keep each other alive
        self.slots.clear()
        while self.take() is not None:
            pass
