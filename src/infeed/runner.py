"""What a worker does with a task: get the samples, apply the maps, write each result into its row.

One runner belongs to one worker (a thread, a process, or the loop itself) and one loader. It keeps no
state that a batch could depend on, except the open iterators of an iterable source, which can be replayed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from infeed.collate import Function, Stack
from infeed.errors import LayoutError, PipelineError
from infeed.layout import Layout, Misfit
from infeed.randomness import GlobalGenerators, KeyedRng
from infeed.readers import ShardReader
from infeed.recipe import Recipe, index_view, row_views
from infeed.sources import IterableSource, Source
from infeed.stages import Stage
from infeed.tasks import BadRow, Piece, Reply, Task
from infeed.wire import Region

IntArray = NDArray[np.int64]
Kind = Literal["inline", "thread", "process"]


class _Noticed(Exception):
    """A stage turned out to use a global generator: do the task again, seeded per sample."""


class RowFailed(Exception):
    """The user's code raised for one row; `__cause__` is what it raised."""

    def __init__(self, row: int, stage: str):
        super().__init__(row, stage)
        self.row = row
        self.stage = stage


@dataclass(slots=True)
class Rows:
    """The samples a task is about: where each comes from, which place it has in the epoch."""

    epoch: int
    indices: IntArray
    positions: Sequence[int]


class Runner:
    """Does tasks; `run` never raises for what the user's code did, it says so in the reply."""

    def __init__(self, recipe: Recipe, kind: Kind, worker: int = 0):
        self.recipe = recipe
        self.kind = kind
        self.worker = worker
        self.layouts: dict[int, Layout] = {}
        self._rng = KeyedRng(recipe.seed)
        self._globals = GlobalGenerators(recipe.seed)
        self._watching = kind != "thread"
        self._readers: dict[str, ShardReader] = {}

    def run(self, task: Task, memory: NDArray[np.uint8], staged: Sequence[Any] = ()) -> Reply:
        """Do the task. `memory` is the whole slot; `staged` are the samples an assemble task is about."""
        start, cpu = time.perf_counter(), time.thread_time()
        try:
            reply = self._until_settled(task, memory, staged)
        except Exception as error:
            error.add_note(f"(in {self._who()})")
            reply = Reply(task.id, "failed", error)
        reply.seconds, reply.cpu = time.perf_counter() - start, time.thread_time() - cpu
        reply.worker = self.worker
        return reply

    def _who(self) -> str:
        return {"inline": "the loop itself", "thread": f"thread {self.worker}"}.get(
            self.kind, f"worker process {self.worker}"
        )

    def _until_settled(self, task: Task, memory: NDArray[np.uint8], staged: Sequence[Any]) -> Reply:
        """Run the task; again, seeded, when a stage was seen to use a global generator for the first time."""
        learning = task.layout < 0
        watch = self._watching or learning
        saved = self._globals.save() if self.kind == "inline" and watch and self._disturbs(learning) else []
        try:
            while True:
                try:
                    return self._dispatch(task, memory, staged, watch)
                except _Noticed:
                    continue
        finally:
            self._globals.restore(saved)

    def _disturbs(self, learning: bool) -> bool:
        stages = 3 + len(self.recipe.stages) + len(self.recipe.batch_stages)
        return learning or any(self._globals.used_by(stage) for stage in range(stages))

    def _dispatch(self, task: Task, memory: NDArray[np.uint8], staged: Sequence[Any], watch: bool) -> Reply:
        if task.kind == "read":
            return self._read(task, watch)
        if task.kind == "assemble":
            return self._assemble(task, memory, staged, watch)
        rows = self._rows(task, memory)
        if task.kind == "sift":
            return self._sift(task, rows, watch)
        try:
            return self._fill(task, rows, memory, watch)
        except RowFailed as failed:
            if self.recipe.on_error == "replace":
                return self._find_bad(task, rows, watch)
            self._raise(failed, rows, task.low)
        raise AssertionError  # _raise never returns

    def _rows(self, task: Task, memory: NDArray[np.uint8]) -> Rows:
        indices = index_view(memory, task.rows)[task.low : task.high]
        if task.kind == "sift":
            positions: Sequence[int] = range(task.first_step, task.first_step + task.high)
        else:
            positions = self.recipe.positions(task.first_step, task.low, task.high).tolist()
        return Rows(task.epoch, indices, positions)

    def _raise(self, failed: RowFailed, rows: Rows, low: int) -> None:
        """Raise the user's own exception, saying which sample it was about."""
        error = failed.__cause__
        assert error is not None
        index, position = int(rows.indices[failed.row]), rows.positions[failed.row]
        error.add_note(f"sample {index} (position {position} of epoch {rows.epoch}), in {failed.stage}")
        raise error

    # -- fill: samples by index into rows of a slot

    def _fill(self, task: Task, rows: Rows, memory: NDArray[np.uint8], watch: bool) -> Reply:
        recipe, layout = self.recipe, self.layouts.get(task.layout)
        if recipe.whole_batches:
            return self._fill_batches(task, rows, memory, layout, watch)
        if layout is not None and recipe.gathers and not task.careful:
            views = row_views(memory, task.rows, layout)
            assert isinstance(recipe.source, Source) and recipe.source.columns is not None
            self._gather(
                recipe.source.columns.columns, rows, [v[task.low : task.high] for v in views if v is not None]
            )
            return Reply(task.id, "done", in_place=True)
        last = recipe.stages[-1] if recipe.stages else None
        if last is not None and last.out is not None and layout is not None:
            return self._fill_in_place(task, rows, row_views(memory, task.rows, layout), layout, watch)
        samples = self._samples(rows, task.careful, watch)
        return self._write_rows(task, rows, samples, memory, layout)

    def _gather(self, columns: Sequence[Any], rows: Rows, out: Sequence[NDArray[Any]]) -> None:
        for column, view in zip(columns, out, strict=True):
            column.take(rows.indices, view)

    def _fill_in_place(
        self, task: Task, rows: Rows, views: list[NDArray[Any] | None], layout: Layout, watch: bool
    ) -> Reply:
        """The last map writes into the batch itself."""
        stages = self.recipe.stages
        samples = self._samples(rows, task.careful, watch, upto=len(stages) - 1)
        outs = [
            layout.tree.build([view[row, ...] for view in views if view is not None])
            for row in range(task.low, task.high)
        ]
        self._apply(len(stages), stages[-1], samples, rows, watch, outs)
        return Reply(task.id, "done", in_place=True)

    def _write_rows(
        self, task: Task, rows: Rows, samples: list[Any], memory: NDArray[np.uint8], layout: Layout | None
    ) -> Reply:
        if layout is None:
            piece = Piece(task.low, task.high, self._stack(samples, rows, None, task.first_step))
            return Reply(task.id, "done", [piece], layout=Layout.of(samples[0]))
        try:
            objects = layout.write(samples, row_views(memory, task.rows, layout), task.low)
        except LayoutError as misfit:
            return Reply(task.id, "done", self._general_rows(task, rows, samples, misfit))
        return Reply(task.id, "done", objects or None, in_place=True)

    def _general_rows(self, task: Task, rows: Rows, samples: list[Any], misfit: LayoutError) -> list[Piece]:
        """The batches of this task as they are, when they do not fit the layout; step by step."""
        if self.recipe.fixed_shapes:
            row = getattr(misfit, "row", 0)
            raise LayoutError(
                f"sample {rows.indices[row]} does not fit the fixed shapes asked for: {misfit}"
            ) from None
        step = self.recipe.plan.rows_per_step
        pieces, low = [], task.low
        while low < task.high:
            high = min(task.high, low - low % step + step)
            part = slice(low - task.low, high - task.low)
            batch = self._stack(samples[part], rows, misfit, task.first_step + low // step, offset=part.start)
            pieces.append(Piece(low, high, batch))
            low = high
        return pieces

    def _stack(
        self, samples: list[Any], rows: Rows, misfit: LayoutError | None, step: int, offset: int = 0
    ) -> Any:
        try:
            return Stack()(samples, Region(np.empty(0, np.uint8)))
        except LayoutError as error:
            named = [str(rows.indices[offset + row]) for row in getattr(error, "rows", ())]
            if named:
                error.add_note(f"these are samples {' and '.join(named)} (step {step} of epoch {rows.epoch})")
            raise

    # -- whole micro-batches: collates and maps over batches

    def _fill_batches(
        self, task: Task, rows: Rows, memory: NDArray[np.uint8], layout: Layout | None, watch: bool
    ) -> Reply:
        region = self._region(task, memory)
        pieces, learned, in_place = [], None, layout is not None
        views = row_views(memory, task.rows, layout) if layout else []
        for low, high in self.recipe.units(task.first_step, task.low, task.high):
            part = slice(low - task.low, high - task.low)
            unit = Rows(rows.epoch, rows.indices[part], rows.positions[part])
            try:
                batch = self._batch_of(unit, task.careful, region, watch)
            except RowFailed as failed:
                raise RowFailed(failed.row + part.start, failed.stage) from failed.__cause__
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
        return Reply(task.id, "done", pieces, layout=learned)

    @staticmethod
    def _region(task: Task, memory: NDArray[np.uint8]) -> Region:
        low, high = task.region
        return Region(memory[low:high])

    def _batch_of(self, rows: Rows, careful: bool, region: Region, watch: bool) -> Any:
        if self.recipe.gathers and not careful:
            assert isinstance(self.recipe.source, Source) and self.recipe.source.columns is not None
            columns = self.recipe.source.columns
            batch = columns.tree.build([column.take(rows.indices) for column in columns.columns])
            return self._finish(batch, rows, watch)
        return self._collate(self._samples(rows, careful, watch), rows, region, watch)

    def _collate(self, samples: list[Any], rows: Rows, region: Region, watch: bool) -> Any:
        stage = len(self.recipe.stages) + 1
        with self._watch(watch and isinstance(self.recipe.collate, Function), stage, "collate"):
            self._seed(stage, rows, 0)
            try:
                batch = self.recipe.collate(samples, region)
            except Exception as error:
                self._name_batch(error, rows, "collate")
                raise
        return self._finish(batch, rows, watch)

    def _finish(self, batch: Any, rows: Rows, watch: bool) -> Any:
        """The maps over whole batches."""
        for number, stage in enumerate(self.recipe.batch_stages, len(self.recipe.stages) + 2):
            keywords: dict[str, Any] = {}
            with self._watch(watch, number, repr(stage)):
                self._seed(number, rows, 0)
                if stage.rng:
                    keywords["rng"] = self._rng.at(rows.epoch, rows.positions[0], number)
                try:
                    batch = stage.fn(batch, **keywords)
                except Exception as error:
                    self._name_batch(error, rows, repr(stage))
                    raise
        return batch

    @staticmethod
    def _name_batch(error: Exception, rows: Rows, stage: str) -> None:
        shown = ", ".join(map(str, rows.indices[:8].tolist())) + (", ..." if len(rows.indices) > 8 else "")
        error.add_note(
            f"batch of {len(rows.indices)} samples [{shown}] "
            f"(positions {rows.positions[0]} to {rows.positions[-1]} of epoch {rows.epoch}), in {stage}"
        )

    # -- samples

    def _samples(self, rows: Rows, careful: bool, watch: bool, upto: int | None = None) -> list[Any]:
        """Fetch and map the samples; `upto` leaves out the last stages."""
        stages = self.recipe.stages[:upto]
        if careful:
            return self._one_by_one(rows, stages, watch)
        samples = self._fetch(rows, watch)
        for number, stage in enumerate(stages, 1):
            samples = self._apply(number, stage, samples, rows, watch)
        return samples

    def _one_by_one(self, rows: Rows, stages: Sequence[Stage], watch: bool) -> list[Any]:
        """One sample at a time, marking the one in hand, so that whoever finds us dead knows which it was."""
        samples = []
        for row, position in enumerate(rows.positions):
            index = rows.indices[row]
            rows.indices[row] = ~index
            one = Rows(rows.epoch, np.array([index], np.int64), [position])
            try:
                made = self._fetch(one, watch)
                for number, stage in enumerate(stages, 1):
                    made = self._apply(number, stage, made, one, watch)
            except RowFailed as failed:
                raise RowFailed(row, failed.stage) from failed.__cause__
            finally:
                rows.indices[row] = index
            samples.append(made[0])
        return samples

    def _fetch(self, rows: Rows, watch: bool) -> list[Any]:
        source = self.recipe.source
        assert isinstance(source, Source)
        if self._globals.used_by(0):
            samples = []
            with self._watch(watch, 0, "the source"):
                for row, position in enumerate(rows.positions):
                    self._globals.seed(rows.epoch, position, 0)
                    samples.extend(self._fetch_rows(source, rows, row, row + 1))
            return samples
        with self._watch(watch and not source.thread_safe, 0, "the source"):
            return self._fetch_rows(source, rows, 0, len(rows.indices))

    def _fetch_rows(self, source: Source, rows: Rows, low: int, high: int) -> list[Any]:
        try:
            return source.fetch(rows.indices[low:high], rows.epoch)
        except Exception as error:
            for row in range(low, high) if high - low > 1 else ():
                try:
                    source.fetch(rows.indices[row : row + 1], rows.epoch)
                except Exception as found:
                    raise RowFailed(row, "the source") from found
            if high - low == 1:
                raise RowFailed(low, "the source") from error
            error.add_note("raised for a whole batch, by none of its samples alone")
            self._name_batch(error, rows, "the source")
            raise

    def _apply(
        self,
        number: int,
        stage: Stage,
        samples: list[Any],
        rows: Rows,
        watch: bool,
        outs: list[Any] | None = None,
    ) -> list[Any]:
        made: list[Any] = []
        add, fn = made.append, stage.fn
        with self._watch(watch, number, repr(stage)):
            try:
                if not stage.rng and stage.out is None and not self._globals.used_by(number):
                    for sample in samples:
                        add(fn(sample))
                else:
                    for row, sample in enumerate(samples):
                        add(self._call(number, stage, sample, rows, row, outs))
            except Exception as error:
                raise RowFailed(len(made), repr(stage)) from error
        return made

    def _call(
        self, number: int, stage: Stage, sample: Any, rows: Rows, row: int, outs: list[Any] | None
    ) -> Any:
        position = rows.positions[row]
        keywords: dict[str, Any] = {}
        self._globals.seed(rows.epoch, position, number)
        if stage.rng:
            keywords["rng"] = self._rng.at(rows.epoch, position, number)
        if stage.out is None:
            return stage.fn(sample, **keywords)
        keywords["out"] = outs[row] if outs else _fresh(stage.out)
        result = stage.fn(sample, **keywords)
        if result is not None and result is not keywords["out"]:
            raise PipelineError(
                f"{stage.name} has an `out` to write into, but returned a {type(result).__name__}; "
                "it must return nothing (or `out`)"
            )
        return keywords["out"]

    def _seed(self, stage: int, rows: Rows, row: int) -> None:
        if self._globals.used_by(stage):
            self._globals.seed(rows.epoch, rows.positions[row], stage)

    def _watch(self, active: bool, stage: int, name: str) -> _Watch:
        return _Watch(self, active, stage, name)

    def noticed(self, stage: int, name: str, used: tuple[str, ...]) -> None:
        """A stage moved a global generator's state."""
        if self.kind == "thread":
            raise PipelineError(
                f"{name} draws from the global generator of {' and '.join(used)}, which all threads share, so "
                "the stream could not be repeated; let the function take a parameter `rng`, or use "
                "mode='processes'"
            )
        if self._globals.note_use(stage, used):
            raise _Noticed

    def samples_at(self, indices: IntArray, positions: Sequence[int], epoch: int) -> list[Any]:
        """Samples after all maps, without a batch: for pipelines that are the source of another one."""
        rows = Rows(epoch, indices, positions)
        try:
            return self._samples(rows, False, False)
        except RowFailed as failed:
            self._raise(failed, rows, 0)
        raise AssertionError  # _raise never returns

    # -- on_error="replace": find all bad rows at once

    def _find_bad(self, task: Task, rows: Rows, watch: bool) -> Reply:
        bad = []
        for row in range(len(rows.indices)):
            one = Rows(rows.epoch, rows.indices[row : row + 1].copy(), [rows.positions[row]])
            try:
                self._samples(one, False, watch)
            except RowFailed as failed:
                error = failed.__cause__
                assert error is not None
                bad.append(BadRow(task.low + row, int(one.indices[0]), one.positions[0], error))
        return Reply(task.id, "bad", bad)

    # -- scanned pipelines: what filters leave, what iterables give

    def _keep(self, samples: list[Any], rows: Rows, watch: bool) -> tuple[list[Any], Rows]:
        """Maps and filters up to the last filter; the survivors and their places."""
        for number, stage in enumerate(self.recipe.stages[: self.recipe.last_filter + 1], 1):
            made = self._apply(number, stage, samples, rows, watch)
            if stage.kind == "map":
                samples = made
                continue
            kept = [row for row, keep in enumerate(made) if keep]
            samples = [samples[row] for row in kept]
            rows = Rows(rows.epoch, rows.indices[kept], [rows.positions[row] for row in kept])
        return samples, rows

    def _sift(self, task: Task, rows: Rows, watch: bool) -> Reply:
        rows = Rows(rows.epoch, rows.indices.copy(), rows.positions)
        samples: list[Any] = []
        try:
            samples = self._fetch(rows, watch)
            samples, kept = self._keep(samples, rows, watch)
        except RowFailed as failed:
            if self.recipe.on_error != "replace":
                self._raise(failed, rows, 0)
            samples, kept, bad = self._sift_one_by_one(rows, watch)
            return Reply(task.id, "done", (samples, kept.positions, kept.indices, bad))
        return Reply(task.id, "done", (samples, list(kept.positions), kept.indices, []))

    def _sift_one_by_one(self, rows: Rows, watch: bool) -> tuple[list[Any], Rows, list[BadRow]]:
        """A scanned pipeline leaves bad samples out: there is no step count to keep equal."""
        samples, places, bad = [], [], []
        for row, position in enumerate(rows.positions):
            one = Rows(rows.epoch, rows.indices[row : row + 1], [position])
            try:
                kept, _ = self._keep(self._fetch(one, watch), one, watch)
            except RowFailed as failed:
                assert failed.__cause__ is not None
                bad.append(BadRow(row, int(one.indices[0]), position, failed.__cause__))
                continue
            samples.extend(kept)
            places.extend([row] * len(kept))
        return samples, Rows(rows.epoch, rows.indices[places], [rows.positions[row] for row in places]), bad

    def _read(self, task: Task, watch: bool) -> Reply:
        source = self.recipe.source
        assert isinstance(source, IterableSource)
        reader = self._readers.get(task.shard)
        if reader is None or reader.epoch != task.epoch or reader.count != task.low:
            reader = self._readers[task.shard] = ShardReader(source, task.shard, task.epoch)
            reader.seek(task.low, task.staged[0] if task.staged else None)
        state = reader.state()
        number = source.shards.index(task.shard)
        positions = range((number << 40) + task.low, (number << 40) + task.high)
        samples, ended = reader.read(task.high - task.low)
        rows = Rows(task.epoch, np.arange(task.low, task.low + len(samples)), list(positions[: len(samples)]))
        try:
            samples, kept = self._keep(samples, rows, watch)
        except RowFailed as failed:
            del self._readers[task.shard]
            self._raise(failed, rows, 0)
        return Reply(task.id, "done", (samples, kept.positions, kept.indices, ended, state))

    def _assemble(self, task: Task, memory: NDArray[np.uint8], staged: Sequence[Any], watch: bool) -> Reply:
        samples, positions, indices = _joined(staged)
        rows = Rows(task.epoch, indices, positions)
        try:
            for number, stage in enumerate(self.recipe.stages, 1):
                if number > self.recipe.last_filter + 1:
                    samples = self._apply(number, stage, samples, rows, watch)
        except RowFailed as failed:
            self._raise(failed, rows, 0)
        layout = self.layouts.get(task.layout)
        if not self.recipe.whole_batches:
            return self._write_rows(task, rows, samples, memory, layout)
        region, pieces = self._region(task, memory), []
        for low, high in self.recipe.units(0, task.low, task.high):
            unit = Rows(task.epoch, indices[low:high], positions[low:high])
            pieces.append(Piece(low, high, self._collate(samples[low:high], unit, region, watch)))
        return Reply(task.id, "done", pieces)


class _Watch:
    """Looks whether the block moved a global generator; a plain class, because this is on the hot path."""

    __slots__ = ("_active", "_before", "_name", "_runner", "_stage")

    def __init__(self, runner: Runner, active: bool, stage: int, name: str):
        self._runner, self._active, self._stage, self._name = runner, active, stage, name

    def __enter__(self) -> None:
        if self._active:
            self._before = self._runner._globals.look()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._active and kind is None:
            used = self._runner._globals.moved(self._before)
            if used:
                self._runner.noticed(self._stage, self._name, used)


def _joined(staged: Sequence[Any]) -> tuple[list[Any], list[int], IntArray]:
    """The samples, positions and indices of several staged runs, in order."""
    samples: list[Any] = []
    positions: list[int] = []
    indices = []
    for (made, places, origin), low, high in staged:
        samples.extend(made[low:high])
        positions.extend(places[low:high])
        indices.append(origin[low:high])
    return samples, positions, np.concatenate(indices)


def _fresh(layout: Layout) -> Any:
    return layout.tree.build([np.empty(field.shape, field.dtype) for field in layout.fields])


def describe(error: BaseException) -> str:
    """The traceback as text, to travel with an exception between processes."""
    return "".join(traceback.format_exception(error)).rstrip()
