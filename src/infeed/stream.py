"""Keeps slots filling ahead of the consumer and hands their batches over in order.

    schedule: cut the stream into slots, slots into tasks       replied: note what came, schedule more
    [ step 7 ][ step 8 ][ steps 9..24 ] ...  ->  crew  ->  [ ready ][ ready ][ ... ]  ->  next()

A slot holds one step, or several small ones, because a hand-over between threads or processes costs more
than a small batch; a large step is filled by several workers together. Which steps share a slot and who
fills it never changes a batch. All methods are called with the crew's lock held.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from infeed.filling import Delivery, Filling
from infeed.layout import Layout, aligned
from infeed.order import Chain
from infeed.pace import set_pace
from infeed.randomness import mix
from infeed.recipe import INDEX_BYTES, Recipe, index_view, row_views, slot_bytes
from infeed.streaming import LEARN_BYTES, Settings, StreamBase, next_task
from infeed.tasks import BadRow, Piece, Reply, Task
from infeed.wire import decode
from infeed.workers.crew import Crew

LEARN_ROWS = 4
ATTEMPTS = 32


class Stream(StreamBase):
    """The stream of a pipeline whose every step can be computed from its number."""

    def __init__(self, crew: Crew, recipe: Recipe, chain: Chain, settings: Settings):
        super().__init__(crew, recipe, settings)
        self.chain = chain
        self.steps = recipe.plan.steps(recipe.size, recipe.last)
        self._next = (0, 0)
        self._version = -1
        self._general = False
        self._adopted: Reply | None = None
        self._delivered: Callable[[], Delivery | None] = _none
        self._set_pace()
        layout = recipe.known_layout()
        if layout is not None:
            self._learned(layout)
        crew.join(self)

    def memory(self, task: Task) -> Any:
        """The slot of a task, for workers that share our memory."""
        return self._by_task[task.id].memory

    # -- what the loader calls

    def restart(self, epoch: int, step: int, adopted: Reply | None = None) -> None:
        """Begin anew at a step. `adopted` is the reply to a learning task that was done elsewhere."""
        self._abandon()
        self._delivered = _none
        self._next = (epoch, step)
        self._adopted = adopted
        self.schedule()

    @property
    def at(self) -> tuple[int, int]:
        """Epoch and step of the batch that `next` would give."""
        delivery = self._delivered()
        if delivery is not None and delivery.left:
            return delivery.filling.epoch, delivery.filling.first_step + delivery.step
        if self._fillings:
            return self._fillings[0].epoch, self._fillings[0].first_step
        return self._next

    @property
    def step_bytes(self) -> int:
        """The size of one step, as far as it is known."""
        return self._pace.nbytes // self._pace.group

    @property
    def ready_steps(self) -> int:
        """Steps that could be had at once."""
        delivery = self._delivered()
        ready = 0 if delivery is None else delivery.left
        for filling in self._fillings:
            if not filling.ready:
                break
            ready += filling.steps
        return ready

    def ready(self) -> bool:
        """Whether `next` would return at once."""
        if self._error is not None:
            return True
        if not self.settings.in_order:
            self._promote()
        return bool(self._fillings) and self._fillings[0].ready

    def _promote(self) -> None:
        """Out of order: bring a filled slot of the same epoch to the front."""
        if self._fillings and not self._fillings[0].ready:
            epoch = self._fillings[0].epoch
            for place, filling in enumerate(self._fillings):
                if filling.ready and filling.epoch == epoch:
                    del self._fillings[place]
                    self._fillings.appendleft(filling)
                    return

    def next(self) -> Delivery:
        """The next slot, whose steps are the caller's to take; only when `ready()`."""
        if self._error is not None:
            raise self._error
        filling = self._fillings.popleft()
        layout = self.layouts.get(filling.layout)
        copy = self._copy_out()
        delivery = Delivery(filling, self.recipe, layout, copy=copy)
        self._delivered = weakref.ref(delivery)
        if not copy:
            self.schedule()  # else the slot comes free only when its batches have been copied
        return delivery

    # -- scheduling

    def schedule(self) -> None:
        """Begin to fill more slots while there is room ahead."""
        while self._error is None and self._room():
            if not self._begin():
                break

    def _room(self) -> bool:
        if self._learning:
            return not self._fillings
        return self._under_way + self._pace.group <= self._pace.ahead

    @property
    def _learning(self) -> bool:
        return self._version < 0 and not self._general

    @property
    def _under_way(self) -> int:
        return sum([filling.steps for filling in self._fillings])

    def _set_pace(self) -> None:
        """Reconsider how much to do at once, with what is known by now."""
        self._pace = set_pace(
            self.recipe,
            self.layouts.get(self._version),
            steps=self.steps,
            workers=self.crew.size,
            prefetch=self.settings.prefetch,
            memory_limit=self._limit,
            group_bytes=self.crew.group_bytes,
            seconds_per_row=self.counters.per_row,
            payload_per_row=self._payload_per_row,
        )

    def _begin(self) -> bool:
        """Take a slot for the next steps and send out its tasks; False if there is no slot."""
        epoch, step = self._next
        if step >= self.steps:
            epoch, step = epoch + 1, 0
        learning = self._learning
        steps = 1 if learning else min(self._pace.group, self.steps - step)
        plan, size, last = self.recipe.plan, self.recipe.size, self.recipe.last
        rows = plan.rows_per_step * (steps - 1) + plan.rows(step + steps - 1, size, last)
        slot = self._slot(slot_bytes(rows, None, LEARN_BYTES) if learning else self._pace.nbytes)
        if slot is None:
            return False
        filling = Filling(epoch, step, steps, rows, slot, self._version)
        self._write_indices(filling)
        self._fillings.append(filling)
        self._next = (epoch, step + steps)
        if learning:
            filling.learning = True
            self._learn(filling)
        else:
            self._cut(filling, 0)
        return True

    def _write_indices(self, filling: Filling) -> None:
        plan = self.recipe.plan
        if plan.is_contiguous:
            start = filling.first_step * plan.samples_per_step
            indices = self.chain.range(start, start + filling.rows, filling.epoch)
        else:
            positions = self.recipe.positions(filling.first_step, 0, filling.rows)
            indices = self.chain.at(positions, filling.epoch)
        index_view(filling.memory, filling.rows)[:] = indices

    def _learn(self, filling: Filling) -> None:
        """A first, small task, whose result shows the layout; no sample is made twice for it."""
        if self.recipe.whole_batches:
            high = self.recipe.units(0, filling.rows)[0][1]
        elif self.recipe.asks_for_batches:
            high = filling.rows
        else:
            high = min(LEARN_ROWS, filling.rows)
        task = self._task(filling, 0, high, aligned(filling.rows * INDEX_BYTES), filling.slot.nbytes)
        if self._adopted is None:
            self._submit(filling, task)
            return
        reply, self._adopted = self._adopted, None
        task.high = reply.value[0].high
        filling.out[task.id] = task
        self._by_task[task.id] = filling
        self.replied(task, reply)

    def _task(self, filling: Filling, low: int, high: int, start: int, end: int) -> Task:
        return Task(
            next_task(),
            self.number,
            "fill",
            filling.epoch,
            filling.slot.number,
            low,
            high,
            rows=filling.rows,
            first_step=filling.first_step,
            layout=filling.layout,
            region=(start, end),
        )

    def _cut(self, filling: Filling, low: int) -> None:
        """Send out tasks for the rows from `low` on."""
        if filling.steps > 1 or low >= filling.rows:
            bounds = [(low, filling.rows)] if low < filling.rows else []
        else:
            unit = self.recipe.plan.micro_batch if self.recipe.whole_batches else 1
            units = -(-(filling.rows - low) // unit)
            parts = min(self._pace.parts, units)
            edges = [min(low + unit * (units * part // parts), filling.rows) for part in range(parts + 1)]
            bounds = list(itertools.pairwise(edges))
        start = slot_bytes(filling.rows, self.layouts.get(filling.layout), 0)
        room = filling.slot.nbytes - start
        for first, last in bounds:
            left = start + room * (first - low) // max(1, filling.rows - low) // 64 * 64
            right = start + room * (last - low) // max(1, filling.rows - low) // 64 * 64
            self._submit(filling, self._task(filling, first, last, left, right))

    # -- replies

    def replied(self, task: Task, reply: Reply) -> None:
        """A task has been done, or has failed."""
        filling = self._by_task.pop(task.id, None)
        if filling is None:
            return
        del filling.out[task.id]
        if filling.abandoned:
            return
        if reply.status == "bad":
            self._replace(filling, task, reply.value)
        elif reply.status == "failed":
            self._failed(filling, task, reply)
        else:
            self._done(filling, task, reply)
        self.schedule()

    def _done(self, filling: Filling, task: Task, reply: Reply) -> None:
        self.counters.add(task.high - task.low, reply)
        if filling.learning:
            self._first(filling, task, reply)
        else:
            filling.replies.append((task, reply))
            self._note_payload(task, reply)
        if self.counters.tasks < 8 or not self.counters.tasks % 64:
            self._set_pace()

    def _note_payload(self, task: Task, reply: Reply) -> None:
        """Larger slots from here on, if what has no row in them needs more room than was thought."""
        needed = max(reply.needed, reply.where.total if reply.where is not None else 0)
        if needed:
            per_row = (needed + 256) / max(1, task.high - task.low)
            if per_row > self._payload_per_row:
                self._payload_per_row = per_row
                self._set_pace()

    def _failed(self, filling: Filling, task: Task, reply: Reply) -> None:
        size = self.recipe.plan.rows_per_step
        first, last = task.low // size, (task.high - 1) // size
        if first == last:
            filling.learning = False  # if it was, this step fails and the next one learns
            filling.fail(first, task.low, reply.value)
            return
        start, end = task.region
        room = (end - start) // (last - first + 1) // 64 * 64
        for step in range(first, last + 1):  # the other steps of the slot are not to suffer
            low, high = max(task.low, step * size), min(task.high, (step + 1) * size)
            left = start + room * (step - first)
            self._submit(filling, self._task(filling, low, high, left, left + room))

    def _first(self, filling: Filling, task: Task, reply: Reply) -> None:
        """The learning task's result: fix the layout, move its rows into a proper slot, go on."""
        layout = reply.layout
        if layout is not None and (layout.has_arrays or self.recipe.rowwise):
            self._learned(layout)
        else:
            self._general = True
            self._note_payload(task, reply)
        value = reply.value
        if value is None:
            assert reply.where is not None
            value = decode(reply.where, filling.memory[slice(*task.region)])
        piece: Piece = value[0]
        self._set_pace()
        filling.use(self._slot(self._pace.nbytes) or self.arena.new(self._pace.nbytes))
        filling.layout, filling.learning = self._version, False
        self._write_indices(filling)
        kept = Reply(task.id, "done", [piece])
        if self._version >= 0:
            kept = _rows_into(filling, self.layouts[self._version], piece, task.id)
        filling.replies.append((task, kept))
        self._cut(filling, task.high)

    def _learned(self, layout: Layout) -> None:
        self._version += 1
        self.layouts[self._version] = layout
        self._set_pace()

    def _replace(self, filling: Filling, task: Task, bad: list[BadRow]) -> None:
        """Give bad rows another sample, the same one in every run, and do the task again."""
        memory = index_view(filling.memory, filling.rows)
        for row in bad:
            attempt = task.replaced.get(row.row, 0) + 1
            if attempt == 1:
                self.bad_samples.append((filling.epoch, row))
            if attempt > ATTEMPTS:
                row.error.add_note(f"and {ATTEMPTS} substitutes for it failed as well")
                self._failed(filling, task, Reply(task.id, "failed", row.error))
                return
            task.replaced[row.row] = attempt
            place = mix(self.recipe.seed, filling.epoch, row.position, attempt) % self.recipe.size
            memory[row.row] = self.chain.at(np.array([place], np.int64), filling.epoch)[0]
        again = self._task(filling, task.low, task.high, *task.region)
        again.replaced = task.replaced
        self._submit(filling, again)


def _none() -> None:
    """No slot is being handed out."""


def _rows_into(filling: Filling, layout: Layout, piece: Piece, task: int) -> Reply:
    """Write the learning task's batch into the first rows of its slot."""
    views = row_views(filling.memory, filling.rows, layout)
    objects = []
    for leaf, view in zip(layout.tree.leaves(piece.batch), views, strict=True):
        if view is None:
            objects.append(leaf)
        else:
            view[piece.low : piece.high] = np.asarray(leaf)
    return Reply(task, "done", objects or None, in_place=True)
