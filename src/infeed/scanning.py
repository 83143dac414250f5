"""The stream of a scanned pipeline: filters and iterables, whose batches are found by going through the data.

    find:     sift tasks (runs of positions, in parallel) or read tasks (one shard each)  ->  survivors, staged in slots
    assemble: the next `samples_per_step` survivors, wherever they are staged               ->  a batch in a slot

The order of the survivors does not depend on who found them when: positions in order for a filter; for an iterable, runs of
`RUN` samples from each shard in turn. So the stream is the same for any number of workers. Where it stands is a cursor: how far
each shard (or the one run of positions) has been used.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.filling import Delivery, Filling
from infeed.layout import aligned
from infeed.order import Chain
from infeed.recipe import INDEX_BYTES, Recipe, index_view, slot_bytes
from infeed.slots import Slot
from infeed.sources import IterableSource
from infeed.stream import LEARN_BYTES, Settings, StreamBase, _task_ids
from infeed.tasks import Reply, Task
from infeed.wire import decode
from infeed.workers.crew import Crew

RUN = 16
READ = 128
SIFT = 64
ALL = "all"


@dataclass(frozen=True)
class Taken:
    """What `next` gives: a batch or an exception, and where the stream then stands; or the end of the epoch."""

    batch: Any = None
    error: BaseException | None = None
    cursor: Any = None
    ended: bool = False


@dataclass
class Find:
    """One task that looks for samples: what it found, and how much of that is used."""

    shard: str
    start: int
    slot: Slot
    task: Task | None = None
    done: bool = False
    error: BaseException | None = None
    count: int = 0
    positions: list[int] = field(default_factory=list)
    indices: Any = None
    where: Any = None
    value: Any = None
    state: Any = None
    last: bool = False
    stop: int = 0
    used: int = 0
    users: int = 0

    @property
    def left(self) -> int:
        """Samples not yet given to a batch."""
        return self.count - self.used


@dataclass
class Lane:
    """One shard, or the whole run of positions of a filtered pipeline."""

    shard: str
    next: int = 0
    finds: deque[Find] = field(default_factory=deque)
    ended: bool = False
    in_turn: int = 0
    state: Any = None
    used: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will come from it."""
        return self.ended and not self.finds


class ScannedStream(StreamBase):
    """The stream of a pipeline with filters or an iterable source."""

    def __init__(self, crew: Crew, recipe: Recipe, chain: Chain, settings: Settings):
        super().__init__(crew, recipe, settings)
        self.chain = chain
        self._lanes: list[Lane] = []
        self._turn = 0
        self._epoch = 0
        self._finding: dict[int, Find] = {}
        self._parts: list[tuple[Find, int, int]] = []
        self._pending = 0
        self._cursors: dict[int, Any] = {}
        self._all_found = False
        self._sources: dict[int, list[tuple[Find, int, int]]] = {}
        self._skipping = 0
        self._delivered = (0, 0, None)
        crew.join(self)

    # -- what the loader calls

    def is_at(self, epoch: int, step: int, cursor: Any) -> bool:
        """Whether `next` would give what comes after this cursor."""
        return self._delivered == (epoch, step, _key(cursor))

    def restart(self, epoch: int, step: int, cursor: Any) -> None:
        """Begin anew after a cursor."""
        self._abandon()
        self._open(epoch, cursor)
        self._delivered = (epoch, step, _key(cursor))
        self.schedule()

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
        epoch, step, _ = self._delivered
        if filling.ended:
            filling.slot.release()
            self._delivered = (epoch + 1, 0, None)
            self.schedule()
            return Taken(ended=True)
        self._delivered = (epoch, step + 1, _key(cursor))
        if 0 in filling.errors:
            filling.slot.release()
            self.schedule()
            return Taken(error=filling.errors[0], cursor=cursor)
        layout = self.layouts.get(filling.layout)
        delivery = Delivery(filling, self.recipe, layout, copy=self._copy_out())
        self.schedule()
        return Taken(delivery.next(), cursor=cursor)

    # -- lanes

    def _open(self, epoch: int, cursor: Any) -> None:
        self._epoch, self._turn, self._pending, self._parts, self._all_found = epoch, 0, 0, [], False
        source = self.recipe.source
        shards = source.shards if isinstance(source, IterableSource) else (ALL,)
        self._lanes = [Lane(shard) for shard in shards]
        if cursor is None:
            return
        self._turn = cursor["turn"]
        for lane, saved in zip(self._lanes, cursor["lanes"], strict=True):
            lane.next = lane.used = saved["start"]
            lane.ended, lane.in_turn, lane.state = saved["ended"], saved["in_turn"], saved["state"]
            lane.next -= saved["skip"]
            lane.used = saved["start"]

    def _cursor(self) -> dict[str, Any]:
        """Where each lane stands after the batch just put together."""
        lanes = []
        for lane in self._lanes:
            state, skip = None, 0
            if lane.finds and lane.finds[0].state is not None and lane.finds[0].done:
                state, skip = lane.finds[0].state, lane.used - lane.finds[0].start
            lanes.append(
                {
                    "start": lane.used,
                    "ended": lane.exhausted,
                    "in_turn": lane.in_turn,
                    "state": state,
                    "skip": max(0, skip) if state is not None else 0,
                }
            )
        return {"turn": self._turn, "lanes": lanes, "ended": False}

    # -- finding

    def schedule(self) -> None:
        """Look for more samples, and put together the batches that can be."""
        if self._error is not None:
            return
        while True:
            if self._all_found and len(self._fillings) < self._ahead() and self._lanes:
                self._open(self._epoch + 1, None)
            found = self._find()
            if not self._compose() and not found:
                return

    def _ahead(self) -> int:
        if self.settings.prefetch is not None:
            return self.settings.prefetch
        return max(1, 2 * self.crew.size)

    def _find(self) -> bool:
        if len(self._fillings) >= self._ahead() or self._all_found:
            return False
        began = False
        sifting = self._lanes[0].shard == ALL
        most = max(2, 2 * self.crew.size) if sifting else 2
        for lane in self._lanes:
            waiting = sum(1 for find in lane.finds if not find.done)
            stock = sum(find.left for find in lane.finds)
            enough = stock > 2 * self.recipe.plan.samples_per_step // len(self._lanes) + READ
            limit = most if sifting else 1
            while not lane.ended and waiting < limit and not enough:
                if not self._send_find(lane, sifting):
                    return began
                waiting += 1
                began = True
        return began

    def _send_find(self, lane: Lane, sifting: bool) -> bool:
        count = SIFT if sifting else READ
        if sifting:
            count = min(count, self.chain.size - lane.next)
            if count <= 0:
                lane.ended = True
                return True
        slot = self._slot(max(slot_bytes(count, None, LEARN_BYTES), self.arena.wanted))
        if slot is None:
            return False
        find = Find(lane.shard, lane.next, slot)
        staged = (lane.state,) if lane.state is not None else ()
        task = Task(
            next(_task_ids),
            self.number,
            "sift" if sifting else "read",
            self._epoch,
            slot.number,
            0 if sifting else lane.next,
            count if sifting else lane.next + count,
            rows=count,
            first_step=lane.next,
            region=(aligned(count * INDEX_BYTES), slot.nbytes),
            staged=staged,
            shard=lane.shard,
            worker=-1 if sifting or not self.crew.size else self._lanes.index(lane) % self.crew.size,
        )
        if sifting:
            indices = self.chain.range(lane.next, lane.next + count, self._epoch)
            index_view(slot.segment.memory, count)[:] = indices
        lane.next += count
        lane.state = None
        find.task = task
        lane.finds.append(find)
        self._finding[task.id] = find
        self.crew.submit(task)
        return True

    def _found(self, find: Find, task: Task, reply: Reply) -> None:
        find.done = True
        find.task = None
        if reply.status == "failed":
            find.error = reply.value
            find.stop = task.first_step + (task.high - task.low)
            return
        value = reply.value
        if value is None:
            assert reply.where is not None
            value = decode(reply.where, find.slot.segment.memory[task.region[0] : task.region[1]])
        self._seconds(task, reply)
        samples, find.positions, find.indices = value[:3]
        find.count = len(samples)
        find.where = (reply.where, task.region[0]) if reply.where is not None and not reply.spilled else None
        find.value = (samples, find.positions, find.indices)
        if task.kind == "read":
            find.last, find.state = value[3], value[4]
            lane = next(lane for lane in self._lanes if lane.shard == find.shard)
            lane.ended = lane.ended or find.last
        else:
            self.bad_samples.extend((task.epoch, bad) for bad in value[3])
        find.stop = task.first_step + (task.high - task.low)

    def _seconds(self, task: Task, reply: Reply) -> None:
        self.counters.add(task.high - task.low, reply)

    # -- putting batches together

    def _compose(self) -> bool:
        """Gather survivors in order; a full step becomes an assemble task. True if anything moved on."""
        if self._all_found or len(self._fillings) >= self._ahead() + 1:
            return False
        size = self.recipe.plan.samples_per_step
        moved = False
        while self._pending < size:
            lane = self._current()
            if lane is None:
                if any(not lane.exhausted for lane in self._lanes):
                    return moved
                self._finish()
                return True
            find = lane.finds[0]
            if find.error is not None:
                self._fail(lane, find)
                return True
            moved = True
            if not self._skip_used(lane, find):
                continue
            run = min(find.left, size - self._pending, self._run_left(lane))
            self._parts.append((find, find.used, find.used + run))
            find.used += run
            find.users += 1
            self._pending += run
            lane.used = (
                find.start + int(find.indices[find.used - 1]) - int(find.start) + 1
                if lane.shard != ALL
                else (find.positions[find.used - 1] + 1)
            )
            self._advance(lane, run)
        self._assemble(self._pending)
        return True

    def _skip_used(self, lane: Lane, find: Find) -> bool:
        """Pass over what a resumed run had already used; drop a find that is used up. True if samples are left."""
        place = find.positions if lane.shard == ALL else find.indices
        while find.left and int(place[find.used]) < lane.used:
            find.used += 1
        if find.left:
            return True
        lane.finds.popleft()
        lane.used = max(lane.used, find.stop)
        self._let_go(find)
        if lane.exhausted and lane.in_turn:
            lane.in_turn = 0
            self._turn += 1
        return False

    def _run_left(self, lane: Lane) -> int:
        return find_size if (find_size := RUN - lane.in_turn) and len(self._lanes) > 1 else 1 << 30

    def _advance(self, lane: Lane, run: int) -> None:
        if len(self._lanes) == 1:
            return
        lane.in_turn += run
        if lane.in_turn >= RUN:
            lane.in_turn = 0
            self._turn += 1

    def _current(self) -> Lane | None:
        """The lane whose turn it is, if it has something to say; None when it must be waited for, or all ended."""
        for _ in range(len(self._lanes)):
            lane = self._lanes[self._turn % len(self._lanes)]
            if not lane.exhausted:
                return lane if lane.finds and lane.finds[0].done else None
            lane.in_turn = 0
            self._turn += 1
        return None

    def _finish(self) -> None:
        """All lanes have ended: a last short step if it is kept, then the end of the epoch."""
        if self._pending and self.recipe.last == "keep":
            self._assemble(self._pending)
        else:
            for find, _, _ in self._parts:
                find.users -= 1
                self._let_go(find)
            self._parts, self._pending = [], 0
        self._mark(ended=True)
        self._all_found = True

    def _fail(self, lane: Lane, find: Find) -> None:
        """What a find raised takes the place of a step; the scan goes on behind it."""
        lane.finds.popleft()
        lane.used = find.stop
        filling = self._mark(ended=False)
        assert find.error is not None
        filling.errors[0] = find.error
        if lane.shard != ALL:
            lane.ended = True
            lane.finds.clear()
        find.slot.release()

    def _mark(self, *, ended: bool) -> Filling:
        slot = self._slot(0) or self.arena.new(self.arena.wanted or 4096)
        filling = Filling(self._epoch, 0, 1, 0, slot, ended=ended)
        self._fillings.append(filling)
        self._cursors[id(filling)] = self._cursor()
        return filling

    def _assemble(self, count: int) -> None:
        parts, self._parts, self._pending = self._parts, [], 0
        rows = self._share(count)
        mine = _rows_of(parts, rows)
        payload = int(self._payload_per_row * 1.25 * len(rows)) + LEARN_BYTES
        slot = self._slot(slot_bytes(len(rows), None, payload)) or self.arena.new(self.arena.wanted)
        filling = Filling(self._epoch, 0, 1, len(rows), slot)
        self._fillings.append(filling)
        self._cursors[id(filling)] = self._cursor()
        task = Task(
            next(_task_ids),
            self.number,
            "assemble",
            self._epoch,
            slot.number,
            0,
            len(rows),
            rows=len(rows),
            region=(aligned(len(rows) * INDEX_BYTES), slot.nbytes),
        )
        if self.crew.shared:
            task.staged = tuple(self._reference(find, low, high) for find, low, high in mine)
        self._sources[task.id] = parts
        self._staged_parts = getattr(self, "_staged_parts", {})
        self._staged_parts[task.id] = mine
        self._submit(filling, task)

    def _share(self, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows of a step that are ours."""
        plan = self.recipe.plan
        if plan.is_contiguous:
            return np.arange(count)
        return plan.positions(0, count, "keep" if count < plan.samples_per_step else "drop")

    def _reference(self, find: Find, low: int, high: int) -> tuple[Any, ...]:
        """Where a worker process finds staged samples; what was spilled is staged again in a slot that can be mapped."""
        if find.where is None:
            find.slot = self._restage(find)
        where, start = find.where
        return find.slot.number, where, start, low, high

    def _restage(self, find: Find) -> Slot:
        from infeed.wire import Region, encode

        grown: list[Slot] = []

        def spill(nbytes: int) -> Any:
            grown.append(self.arena.new(aligned(nbytes) + 4096))
            return grown[0].segment.memory

        region = Region(find.slot.segment.memory)
        where = encode(find.value, region, spill)
        find.where = (where, 0)
        if grown:
            find.slot.release()
            return grown[0]
        return find.slot

    def staged(self, task: Task) -> tuple[Any, ...]:
        """The staged samples of an assemble task, for workers in this process."""
        if task.kind != "assemble":
            return ()
        with self.crew.lock:  # type: ignore[attr-defined]
            return tuple((find.value, low, high) for find, low, high in self._staged_parts[task.id])

    # -- replies

    def replied(self, task: Task, reply: Reply) -> None:
        """A find or an assembly is done."""
        find = self._finding.pop(task.id, None)
        if find is not None:
            self._found(find, task, reply)
            if find.users < 0:
                find.slot.release()  # abandoned meanwhile
                return
            self.schedule()
            return
        for part, _, _ in self._sources.pop(task.id, ()):
            part.users -= 1
            self._let_go(part)
        self._staged_parts.pop(task.id, None)
        filling = self._by_task.pop(task.id, None)
        if filling is None:
            return
        del filling.out[task.id]
        if filling.abandoned:
            filling.slot.release()
            return
        if reply.status == "failed":
            filling.errors[0] = reply.value
        else:
            filling.replies.append((task, reply))
            if reply.where is not None:
                self._payload_per_row = max(self._payload_per_row, reply.where.total / max(1, task.high))
        self.schedule()

    def _let_go(self, find: Find) -> None:
        """Free a find's slot when it is used up and no assembly reads from it."""
        if find.done and not find.users and not find.left and find.value is not None:
            find.value = None
            find.slot.release()

    def _abandon(self) -> None:
        for task in self.crew.cancel(self):
            find = self._finding.pop(task.id, None)
            if find is not None:
                find.slot.release()
            self._sources.pop(task.id, None)
            filling = self._by_task.pop(task.id, None)
            if filling is not None:
                filling.out.pop(task.id, None)
        for find in self._finding.values():
            find.users = -1 << 30
        self._lanes, self._parts, self._pending = [], [], 0
        super()._abandon()


def _rows_of(parts: list[tuple[Find, int, int]], rows: Any) -> list[tuple[Find, int, int]]:
    """The parts, cut down to the given rows of the step."""
    total = sum(high - low for _, low, high in parts)
    if len(rows) == total:
        return parts
    mine: list[tuple[Find, int, int]] = []
    at = 0
    for find, low, high in parts:
        inside = rows[(rows >= at) & (rows < at + high - low)] - at + low
        for _, run in itertools.groupby(enumerate(inside.tolist()), key=lambda pair: pair[1] - pair[0]):
            places = [place for _, place in run]
            mine.append((find, places[0], places[-1] + 1))
        at += high - low
    return mine


def _key(cursor: Any) -> Any:
    """A cursor as something that can be compared."""
    if cursor is None:
        return None
    return cursor["turn"], tuple((lane["start"], lane["ended"], lane["in_turn"]) for lane in cursor["lanes"])
