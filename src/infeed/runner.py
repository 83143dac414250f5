"""What a worker does with a task: make the samples, write each into its row, and say what came of it.

One runner belongs to one worker (a thread, a process, or the loop itself) and one loader. It keeps no
state that a batch could depend on, except the open iterators of an iterable source, which can be replayed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.collate import Heap, Stack
from infeed.errors import LayoutError
from infeed.layout import Layout, Misfit
from infeed.readers import ShardReader
from infeed.recipe import Recipe, index_view, row_views
from infeed.samples import USERS_FAULT, IntArray, Kind, Maker, Noticed, RowFailed, Rows, annotate
from infeed.sifting import Sifter
from infeed.tasks import BadRow, Piece, Reply, Task
from infeed.wire import Region

Bytes = NDArray[np.uint8]


class Runner:
    """Does tasks; `run` never raises for what the user's code did, it says so in the reply.

    `readers` are the open shards of an iterable, which threads share: a shard is read by one at a time.
    """

    def __init__(self, recipe: Recipe, kind: Kind, worker: int = 0, readers: dict[str, ShardReader] | None = None):
        self.recipe = recipe
        self.kind = kind
        self.worker = worker
        self.layouts: dict[int, Layout] = {}
        self.maker = Maker(recipe, kind)
        self._settled = False
        self._sifter = Sifter(recipe, self.maker, {} if readers is None else readers, self._who())

    def run(self, task: Task, memory: Bytes, staged: Sequence[Any] = ()) -> Reply:
        """Do the task. `memory` is the whole slot; `staged` are the samples an assemble task is about."""
        watched = self.kind == "inline"  # the choice of a mode asks for it; elsewhere a system call too many
        start, cpu = time.perf_counter(), time.thread_time() if watched else 0.0
        try:
            reply = self._until_settled(task, memory, staged)
        except USERS_FAULT as error:
            annotate(error, f"in {self._who()}")
            reply = Reply(task.id, "failed", error)
        reply.seconds = time.perf_counter() - start
        if watched:
            reply.cpu = time.thread_time() - cpu
        reply.worker = self.worker
        return reply

    def samples_at(self, indices: IntArray, positions: Sequence[int], epoch: int) -> list[Any]:
        """Samples after all maps, without a batch: for pipelines that are the source of another one."""
        rows = Rows(epoch, indices, positions)
        self.maker.watching = False  # whoever asks watches
        try:
            return self.maker.samples(rows)
        except RowFailed as failed:
            error = rows.explain(failed)
            error.__dict__["_infeed_fresh"] = True
            raise error from None

    def _who(self) -> str:
        return {"inline": "the loop itself", "thread": f"thread {self.worker}"}.get(
            self.kind, f"worker process {self.worker}"
        )

    def _until_settled(self, task: Task, memory: Bytes, staged: Sequence[Any]) -> Reply:
        """Run the task; again, seeded, when a stage was seen to use a global generator for the first time."""
        borrowed = self.kind == "inline" and (not self._settled or self.maker.disturbs())
        saved = self.maker.globals.save() if borrowed else []
        try:
            while True:
                try:
                    reply = self._dispatch(task, memory, staged)
                    break
                except Noticed:
                    continue
        finally:
            self.maker.globals.restore(saved)
        self._settled = True
        if self.kind == "thread":
            self.maker.watching = False  # later on, other threads' draws could not be told from ours
        return reply

    def _dispatch(self, task: Task, memory: Bytes, staged: Sequence[Any]) -> Reply:
        if task.kind == "assemble":
            return self._assemble(task, memory, staged)
        indices = index_view(memory, task.rows)
        if task.kind == "read":
            return self._sifter.read(task, indices)
        if task.kind == "sift":
            return self._sifter.sift(task, indices)
        indices = indices[task.low : task.high]
        rows = Rows(task.epoch, indices, self.recipe.places(task.first_step, task.low, task.high))
        try:
            return self._fill(task, rows, memory)
        except RowFailed as failed:
            if self.recipe.on_error == "replace":
                return self._find_bad(task, rows)
            raise rows.explain(failed) from failed.__cause__.__cause__  # type: ignore[union-attr]

    # -- rows

    def _fill(self, task: Task, rows: Rows, memory: Bytes) -> Reply:
        recipe, layout = self.recipe, self.layouts.get(task.layout)
        if recipe.whole_batches:
            return self._fill_batches(task, rows, memory, layout)
        if layout is not None and recipe.gathers and not task.careful:
            views = row_views(memory, task.rows, layout)
            for column, view in zip(recipe.columns().columns, views, strict=True):
                column.take(rows.indices, view[task.low : task.high])  # type: ignore[index]
            return Reply(task.id, "done", in_place=True)
        if layout is not None and recipe.stages and recipe.stages[-1].out is not None:
            return self._fill_in_place(task, rows, row_views(memory, task.rows, layout), layout)
        samples = self.maker.samples(rows, careful=task.careful)
        return self._write_rows(task, rows, samples, memory, layout)

    def _fill_in_place(self, task: Task, rows: Rows, views: list[NDArray[Any] | None], layout: Layout) -> Reply:
        """The last map writes into the batch itself."""
        stages = self.recipe.stages
        samples = self.maker.samples(rows, careful=task.careful, upto=len(stages) - 1)
        outs = [
            layout.tree.build([view[row, ...] for view in views if view is not None])
            for row in range(task.low, task.high)
        ]
        self.maker.apply(len(stages), stages[-1], samples, rows, outs)
        return Reply(task.id, "done", in_place=True)

    def _write_rows(
        self, task: Task, rows: Rows, samples: list[Any], memory: Bytes, layout: Layout | None
    ) -> Reply:
        if layout is None:
            piece = Piece(task.low, task.high, self._stack(samples, rows, task.first_step))
            return Reply(task.id, "done", [piece], layout=Layout.of(samples[0]))
        try:
            objects = layout.write(samples, row_views(memory, task.rows, layout), task.low)
        except LayoutError as misfit:
            return Reply(task.id, "done", self._general_rows(task, rows, samples, misfit))
        return Reply(task.id, "done", objects or None, in_place=True)

    def _general_rows(self, task: Task, rows: Rows, samples: list[Any], misfit: LayoutError) -> list[Piece]:
        """The batches of this task as they are, when they do not fit the layout; step by step."""
        if self.recipe.fixed_shapes:
            sample = rows.indices[getattr(misfit, "row", 0)]
            raise LayoutError(f"sample {sample} does not fit the fixed shapes asked for: {misfit}") from None
        step = self.recipe.plan.rows_per_step
        pieces, low = [], task.low
        while low < task.high:
            high = min(task.high, low - low % step + step)
            first, last = low - task.low, high - task.low
            batch = self._stack(samples[first:last], rows.part(first, last), task.first_step + low // step)
            pieces.append(Piece(low, high, batch))
            low = high
        return pieces

    @staticmethod
    def _stack(samples: list[Any], rows: Rows, step: int) -> Any:
        try:
            return Stack()(samples, Heap())
        except LayoutError as error:
            named = [str(rows.indices[row]) for row in getattr(error, "rows", ())]
            if named:
                annotate(error, f"these are samples {' and '.join(named)} (step {step} of epoch {rows.epoch})")
            raise

    # -- whole micro-batches: collates and maps over batches

    def _fill_batches(self, task: Task, rows: Rows, memory: Bytes, layout: Layout | None) -> Reply:
        region = Region(memory[slice(*task.region)])
        pieces, learned, in_place = [], None, layout is not None
        views = row_views(memory, task.rows, layout) if layout else []
        for low, high in self.recipe.units(task.low, task.high):
            start = low - task.low
            try:
                batch = self.maker.batch(rows.part(start, high - task.low), region, careful=task.careful)
            except RowFailed as failed:
                raise RowFailed(failed.row + start, failed.stage) from failed.__cause__
            if layout is not None:
                try:
                    layout.write_batch(batch, views, low, high - low)
                except Misfit:
                    in_place = False
            elif self.recipe.rowwise and learned is None:
                learned = Layout.of_batch(batch, high - low)
            pieces.append(Piece(low, high, batch))
        if in_place:
            return Reply(task.id, "done", in_place=True)
        return Reply(task.id, "done", pieces, layout=learned, needed=region.asked, written=region.used)

    # -- the rest

    def _find_bad(self, task: Task, rows: Rows) -> Reply:
        """on_error="replace": all rows that raise, found at once."""
        bad = []
        for row in range(len(rows.indices)):
            one = Rows(rows.epoch, rows.indices[row : row + 1].copy(), [rows.positions[row]])
            try:
                self.maker.samples(one)
            except RowFailed as failed:
                index, error = int(one.indices[0]), one.explain(failed)
                annotate(error, f"in {self._who()}")
                bad.append(BadRow(task.low + row, index, one.positions[0], error))
        return Reply(task.id, "bad", bad)

    def _assemble(self, task: Task, memory: Bytes, staged: Sequence[Any]) -> Reply:
        """Staged samples into a batch."""
        samples, rows = self._sifter.rest(task, staged)
        if not self.recipe.whole_batches:
            return self._write_rows(task, rows, samples, memory, self.layouts.get(task.layout))
        region, pieces = Region(memory[slice(*task.region)]), []
        for low, high in self.recipe.units(task.low, task.high):
            batch = self.maker.collate(samples[low:high], rows.part(low, high), region)
            pieces.append(Piece(low, high, batch))
        return Reply(task.id, "done", pieces, needed=region.asked, written=region.used)


def describe(error: BaseException) -> str:
    """The traceback as text, to travel with an exception between processes; its notes travel by themselves."""
    told = traceback.TracebackException.from_exception(error)
    told.__notes__ = None
    return "".join(told.format()).rstrip()
