"""The stream of a scanned pipeline: filters and iterables, whose batches are found by going through the data.

    find:     sift tasks (runs of positions, in parallel) or read tasks (one shard each)  ->  samples staged
    in slots assemble: the next `samples_per_step` samples, wherever they are staged                ->  a
    batch in a slot

What order the samples have is settled by `lanes.py` and does not depend on the workers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.filling import Delivery, Filling
from infeed.lanes import ALL, Find, Lane, Lanes, Part
from infeed.layout import aligned
from infeed.order import Chain
from infeed.recipe import INDEX_BYTES, Recipe, index_view, slot_bytes
from infeed.slots import Slot
from infeed.sources import IterableSource
from infeed.streaming import LEARN_BYTES, Settings, StreamBase, next_task
from infeed.tasks import BadRow, Reply, Task
from infeed.wire import Region, decode, encode
from infeed.workers.crew import Crew

READ = 128
SIFT = 64


@dataclass(frozen=True)
class Taken:
    """What `next` gives: a batch or an exception, where the stream then stands; or the epoch's end."""

    batch: Any = None
    error: BaseException | None = None
    cursor: Any = None
    ended: bool = False

    @property
    def left(self) -> int:
        """How many batches that makes."""
        return 0 if self.ended else 1


class ScannedStream(StreamBase):
    """The stream of a pipeline with filters or an iterable source."""

    def __init__(self, crew: Crew, recipe: Recipe, chain: Chain, settings: Settings):
        super().__init__(crew, recipe, settings)
        self.chain = chain
        source = recipe.source
        self._shards = source.shards if isinstance(source, IterableSource) else (ALL,)
        self._sifting = not isinstance(source, IterableSource)
        self._lanes = Lanes(self._shards)
        self._epoch = 0
        self._all_found = False
        self._finding: dict[int, tuple[Lane, Find]] = {}
        self._cursors: dict[int, Any] = {}
        self._assembling: dict[int, tuple[list[Part], list[Part]]] = {}
        self._at: tuple[int, int, Any] = (0, 0, None)
        crew.join(self)

    # -- what the loader calls

    def is_at(self, epoch: int, step: int, cursor: Any) -> bool:
        """Whether `next` would give what comes after this cursor."""
        return self._at == (epoch, step, cursor)

    def restart(self, epoch: int, step: int, cursor: Any) -> None:
        """Begin anew after a cursor."""
        self._abandon()
        self._open(epoch, cursor)
        self._at = (epoch, step, cursor)
        self.schedule()

    def _open(self, epoch: int, cursor: Any) -> None:
        self._epoch, self._all_found = epoch, False
        self._lanes = Lanes(self._shards, cursor)

    @property
    def ready_steps(self) -> int:
        """Steps that could be had at once."""
        return sum(1 for _ in itertools.takewhile(lambda filling: filling.ready, self._fillings))

    def ready(self) -> bool:
        """Whether `next` would return at once."""
        return self._error is not None or (bool(self._fillings) and self._fillings[0].ready)

    def next(self) -> Taken:
        """The next batch or the end of the epoch; only when `ready()`."""
        if self._error is not None:
            raise self._error
        filling = self._fillings.popleft()
        cursor = self._cursors.pop(id(filling))
        epoch, step, _ = self._at
        self._at = (epoch + 1, 0, None) if filling.ended else (epoch, step + 1, cursor)
        if filling.ended or filling.errors:
            taken = Taken(error=filling.errors.get(0), cursor=cursor, ended=filling.ended)
        else:
            delivery = Delivery(filling, self.recipe, None, copy=self._copy_out())
            taken = Taken(delivery.next(), cursor=cursor)
        self.schedule()
        return taken

    # -- scheduling

    def schedule(self) -> None:
        """Look for more samples, and put together the batches that can be."""
        while self._error is None and len(self._fillings) < self._ahead():
            if self._all_found:
                self._open(self._epoch + 1, None)
            found = self._find()
            if not self._compose() and not found:
                return

    def _ahead(self) -> int:
        if self.settings.prefetch is not None:
            return self.settings.prefetch
        return max(1, 2 * self.crew.size)

    def _find(self) -> bool:
        """Send out tasks that look for samples, while there is not enough in stock."""
        began = False
        size = self.recipe.plan.samples_per_step
        enough = 2 * size // len(self._lanes.lanes) + READ
        most = max(2, 2 * self.crew.size) if self._sifting else 1
        for lane in self._lanes.lanes:
            while (
                not lane.ended
                and sum(not find.done for find in lane.finds) < most
                and sum(find.left for find in lane.finds) <= enough
            ):
                if not self._send_find(lane):
                    return began
                began = True
        return began

    def _send_find(self, lane: Lane) -> bool:
        count = READ
        if self._sifting:
            count = min(SIFT, self.chain.size - lane.next)
            if count <= 0:
                lane.ended = True
                return True
        slot = self._slot(slot_bytes(count, None, LEARN_BYTES))
        if slot is None:
            return False
        task = Task(
            next_task(),
            self.number,
            "sift" if self._sifting else "read",
            self._epoch,
            slot.number,
            0 if self._sifting else lane.next,
            count if self._sifting else lane.next + count,
            rows=count,
            first_step=lane.next,
            region=(aligned(count * INDEX_BYTES), slot.nbytes),
            staged=(lane.state,) if lane.state is not None else (),
            shard=lane.shard,
            worker=-1 if self._sifting else self._lanes.lanes.index(lane) % max(1, self.crew.size),
        )
        if self._sifting:
            indices = self.chain.range(lane.next, lane.next + count, self._epoch)
            index_view(slot.segment.memory, count)[:] = indices
        find = Find(lane.next, lane.next + count, slot)
        lane.next, lane.state = find.stop, None
        lane.finds.append(find)
        self._finding[task.id] = (lane, find)
        self.crew.submit(task)
        return True

    def _compose(self) -> bool:
        """Collect samples in order; a full step becomes an assemble task. True if anything moved on."""
        outcome = self._lanes.take(self.recipe.plan.samples_per_step)
        for find in self._lanes.spent:
            self._let_go(find)
        self._lanes.spent.clear()
        if outcome == "waiting":
            return False
        if isinstance(outcome, BaseException):
            self._mark(ended=False).errors[0] = outcome
        elif outcome == "full":
            self._assemble()
        else:
            self._finish()
        return True

    def _finish(self) -> None:
        """All lanes have ended: a last short step if it is kept, then the end of the epoch."""
        if self._lanes.pending and self.recipe.last == "keep":
            self._assemble()
        else:
            self._drop(self._lanes.collected()[0])
        self._mark(ended=True)
        self._all_found = True

    def _mark(self, *, ended: bool) -> Filling:
        """A place in the row of batches that holds none: an exception, or the end of the epoch."""
        slot = self._slot(0) or self.arena.new(max(self.arena.wanted, 4096))
        filling = Filling(self._epoch, 0, 1, 0, slot, ended=ended)
        self._fillings.append(filling)
        self._cursors[id(filling)] = self._lanes.cursor()
        return filling

    def _assemble(self) -> None:
        parts, count = self._lanes.collected()
        plan = self.recipe.plan
        rows = np.arange(count) if plan.is_contiguous else plan.positions(0, count, "drop")
        mine = _only(parts, rows)
        payload = int(self._payload_per_row * 1.25 * len(rows)) + LEARN_BYTES
        nbytes = slot_bytes(len(rows), None, payload)
        slot = self._slot(nbytes) or self.arena.new(max(self.arena.wanted, nbytes))
        filling = Filling(self._epoch, 0, 1, len(rows), slot)
        self._fillings.append(filling)
        self._cursors[id(filling)] = self._lanes.cursor()
        task = Task(
            next_task(),
            self.number,
            "assemble",
            self._epoch,
            slot.number,
            0,
            len(rows),
            rows=len(rows),
            region=(aligned(len(rows) * INDEX_BYTES), slot.nbytes),
            staged=tuple(self._reference(*part) for part in mine) if self.crew.shared else (),
        )
        self._assembling[task.id] = (parts, mine)
        self._submit(filling, task)

    # -- staging

    def _reference(self, find: Find, low: int, high: int) -> tuple[Any, ...]:
        """Where a worker process finds staged samples; what was spilled is moved into a slot."""
        if find.where is None:
            grown: list[Slot] = []

            def spill(nbytes: int) -> Any:
                grown.append(self.arena.new(nbytes))
                return grown[0].segment.memory

            find.where = (encode(find.value, Region(find.slot.segment.memory), spill), 0)
            if grown:
                find.slot.release()
                find.slot = grown[0]
        where, start = find.where
        return find.slot.number, where, start, low, high

    def memory(self, task: Task) -> Any:
        """The slot of a task, for workers that share our memory."""
        if task.id in self._finding:
            return self._finding[task.id][1].slot.segment.memory
        return self._by_task[task.id].memory

    def staged(self, task: Task) -> tuple[Any, ...]:
        """The staged samples of an assemble task, for workers in this process."""
        if task.kind != "assemble":
            return ()
        with self.crew.lock:
            _, mine = self._assembling.get(task.id, ([], []))
            return tuple((find.value, low, high) for find, low, high in mine)

    def _drop(self, parts: list[Part]) -> None:
        for find, _, _ in parts:
            find.readers -= 1
            self._let_go(find)

    def _let_go(self, find: Find) -> None:
        if find.over and find.value is not None:
            find.value = None
            find.slot.release()

    # -- replies

    def replied(self, task: Task, reply: Reply) -> None:
        """A find or an assembly is done."""
        if task.id in self._finding:
            self._found(task, reply)
        elif task.id in self._assembling:
            self._assembled(task, reply)
        self.schedule()

    def _found(self, task: Task, reply: Reply) -> None:
        lane, find = self._finding.pop(task.id)
        if find.abandoned:
            find.slot.release()
            return
        if reply.status == "bad":
            self._without(lane, find, task, reply.value)
            return
        find.done = True
        find.value = ((), (), np.empty(0, np.int64))
        if reply.status == "failed":
            find.errors.append((find.start, reply.value))
            lane.ended = lane.ended or not self._sifting
            return
        value = reply.value
        if value is None:
            assert reply.where is not None
            value = decode(reply.where, find.slot.segment.memory[slice(*task.region)])
        if reply.where is not None and not reply.spilled:
            find.where = (reply.where, task.region[0])
        self.counters.add(task.rows if self._sifting else len(value[1]) + len(value[3]), reply)
        find.value = value[:3]
        find.places = value[1] if self._sifting else value[2].tolist()
        self._note_bad(find, task, value[3])
        if not self._sifting:
            lane.ended, find.state = lane.ended or value[4], value[5]

    def _note_bad(self, find: Find, task: Task, bad: list[BadRow]) -> None:
        if self.recipe.on_error == "replace":
            self.bad_samples.extend((task.epoch, row) for row in bad)
        else:
            places = (row.position if self._sifting else row.index for row in bad)
            find.errors.extend(zip(places, (row.error for row in bad), strict=True))
            find.errors.sort(key=lambda pair: pair[0])

    def _without(self, lane: Lane, find: Find, task: Task, bad: list[BadRow]) -> None:
        """A sample that ends its worker is left out of the search from here on."""
        self._note_bad(find, task, bad)
        task.replaced.update({row.row: 1 for row in bad})
        task.id, task.deaths = next_task(), 0
        self._finding[task.id] = (lane, find)
        self.crew.submit(task)

    def _assembled(self, task: Task, reply: Reply) -> None:
        parts, _ = self._assembling.pop(task.id)
        self._drop(parts)
        filling = self._by_task.pop(task.id)
        del filling.out[task.id]
        if filling.abandoned:
            return
        if reply.status == "done":
            filling.replies.append((task, reply))
            needed = max(reply.needed, reply.where.total if reply.where is not None else 0)
            self._payload_per_row = max(self._payload_per_row, needed / max(1, task.high))
        else:
            filling.errors[0] = reply.value

    def _abandon(self) -> None:
        for task in self.crew.cancel(self):
            if task.id in self._finding:
                _, find = self._finding.pop(task.id)
                find.done = True
                find.value = ()
            if task.id in self._assembling:
                self._drop(self._assembling.pop(task.id)[0])
                filling = self._by_task.pop(task.id)
                filling.out.clear()
        self._drop(self._lanes.collected()[0])
        for find in self._lanes.finds():
            find.abandoned = True
            self._let_go(find)
        self._lanes = Lanes(self._shards)
        super()._abandon()


def _only(parts: list[Part], rows: Any) -> list[Part]:
    """The parts, cut down to the given rows of the step: a rank's share."""
    if len(rows) == sum(high - low for _, low, high in parts):
        return parts
    mine: list[Part] = []
    at = 0
    for find, low, high in parts:
        inside = (rows[(rows >= at) & (rows < at + high - low)] - at + low).tolist()
        for _, run in itertools.groupby(enumerate(inside), key=lambda pair: pair[1] - pair[0]):
            places = [place for _, place in run]
            mine.append((find, places[0], places[-1] + 1))
        at += high - low
    return mine
