"""What the two kinds of streams have in common: an arena, the fillings on their way, counters, limits."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any

from infeed.errors import OutOfMemory
from infeed.filling import Filling
from infeed.layout import Layout
from infeed.recipe import Recipe
from infeed.slots import Arena, Slot, free_memory
from infeed.slots.segments import megabytes
from infeed.tasks import BadRow, Reply, Task
from infeed.workers.crew import Crew

LEARN_BYTES = 1 << 18

_numbers = itertools.count()
_task_ids = itertools.count()


def next_task() -> int:
    """A number for a new task; tasks are numbered over all loaders.

    >>> next_task() < next_task()
    True
    """
    return next(_task_ids)


@dataclass
class Settings:
    """What the user may set about how far ahead to work."""

    prefetch: int | None = None
    memory_limit: int | None = None
    in_order: bool = True


class Counters:
    """Sums over all replies, for statistics and for cutting tasks."""

    def __init__(self) -> None:
        self.tasks = 0
        self.rows = 0
        self.seconds = 0.0
        self.cpu = 0.0
        self.general = 0
        self.per_row = 0.0

    def add(self, rows: int, reply: Reply) -> None:
        """Count one reply; the first, cold and small, hardly weighs in `per_row`."""
        self.tasks += 1
        self.rows += rows
        self.seconds += reply.seconds
        self.cpu += reply.cpu
        self.general += not reply.in_place
        if rows:
            now = reply.seconds / rows
            self.per_row = now if self.tasks <= 2 else 0.75 * self.per_row + 0.25 * now


class StreamBase(ABC):
    """What every stream has: an arena, layouts, and the fillings on their way in order."""

    def __init__(self, crew: Crew, recipe: Recipe, settings: Settings):
        self.number = next(_numbers)
        self.crew = crew
        self.recipe = recipe
        self.settings = settings
        self.arena = Arena(shared=crew.shared)
        self.layouts: dict[int, Layout] = {}
        self.counters = Counters()
        self.bad_samples: list[tuple[int, BadRow]] = []
        self.copied = 0
        self._fillings: deque[Filling] = deque()
        self._payload_per_row = 0.0
        self._by_task: dict[int, Filling] = {}
        self._error: BaseException | None = None
        self._limit = settings.memory_limit or max(free_memory() // 3, 1 << 26)

    @abstractmethod
    def replied(self, task: Task, reply: Reply) -> None:
        """A task has been answered."""

    def lost(self, error: BaseException) -> None:
        """The crew can do no more: everyone who waits is told."""
        self._error = error

    @abstractmethod
    def memory(self, task: Task) -> Any:
        """The slot of a task, for workers that share our memory."""

    def staged(self, task: Task) -> tuple[Any, ...]:
        """Only scanned streams stage samples."""
        return ()

    def _submit(self, filling: Filling, task: Task) -> None:
        filling.out[task.id] = task
        self._by_task[task.id] = filling
        self.crew.submit(task)

    def _slot(self, nbytes: int) -> Slot | None:
        """A free slot of at least this size, or a new one while the limit allows; else None."""
        self.arena.wanted = max(self.arena.wanted, nbytes)
        slot = self.arena.take()
        gone = self.arena.retired()
        if gone:
            self.crew.retire(self, gone)
        if slot is not None:
            return slot
        if self._fillings and self._full():
            return None  # with none on its way there must be one more, whose batch will be a copy
        if self.arena.wanted > self._limit:
            raise OutOfMemory(
                f"one slot needs {megabytes(self.arena.wanted)}, and the limit is {megabytes(self._limit)}; "
                "use smaller steps, or raise memory_limit"
            )
        try:
            return self.arena.new(self.arena.wanted)
        except OutOfMemory:
            if self._fillings:
                return None  # go on with the slots there are
            raise

    def _abandon(self) -> None:
        """Drop all fillings. Slots with tasks still in hand come free when these answer."""
        for task in self.crew.cancel(self):
            filling = self._by_task.pop(task.id, None)
            if filling is not None:
                filling.out.pop(task.id, None)
        for filling in self._fillings:
            filling.abandoned = True
        self._fillings.clear()

    def close(self) -> None:
        """Let go of everything; batches the user still holds stay valid."""
        self._abandon()
        self.crew.leave(self)
        self.arena.close()
        self._by_task.clear()

    def _copy_out(self) -> bool:
        """Whether the user keeps so many batches that this one must be a copy: the arena is at its limit."""
        copy = self._full() and not self.arena.free and len(self._fillings) < 2
        self.copied += copy
        return copy

    def _full(self) -> bool:
        """Whether the arena may grow no more, but for the one slot that must always be had."""
        return self.arena.nbytes + 2 * self.arena.wanted > self._limit
