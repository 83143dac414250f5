"""Makes samples and batches out of a recipe: fetch, map, collate; each with the randomness that is its own.

Every stage has a number: the source 0, then the maps and filters, the collate, the maps over batches. A
stage that draws from a global generator is noticed by the generator's state having moved; from then on it
is run one sample at a time, seeded before each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from infeed.collate import Function, Heap, Memory
from infeed.errors import PipelineError
from infeed.layout import Layout
from infeed.randomness import GlobalGenerators, KeyedRng
from infeed.recipe import Recipe
from infeed.sources import Source
from infeed.stages import Stage

IntArray = NDArray[np.int64]
Kind = Literal["inline", "thread", "process"]
SURE = 3
NOTE = "infeed: "
USERS_FAULT = (Exception, SystemExit)


class Noticed(Exception):
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

    def part(self, low: int, high: int) -> Rows:
        """Some of them."""
        return Rows(self.epoch, self.indices[low:high], self.positions[low:high])

    def explain(self, failed: RowFailed) -> BaseException:
        """The user's own exception, with a note that says which sample it was about."""
        error = failed.__cause__
        assert error is not None
        index, position = int(self.indices[failed.row]), self.positions[failed.row]
        annotate(error, f"sample {index} (position {position} of epoch {self.epoch}), in {failed.stage}")
        return error

    def name_all(self, error: BaseException, stage: str) -> None:
        """A note for what a whole batch raised."""
        shown = ", ".join(map(str, self.indices[:8].tolist())) + (", ..." if len(self.indices) > 8 else "")
        annotate(
            error,
            f"batch of {len(self.indices)} samples [{shown}] "
            f"(positions {self.positions[0]} to {self.positions[-1]} of epoch {self.epoch}), in {stage}",
        )


def annotate(error: BaseException, note: str) -> None:
    """Add a note of ours to an exception of the user's."""
    error.add_note(NOTE + note)


def _unannotated(error: BaseException) -> BaseException:
    """The exception without notes of ours from an earlier time: some programs raise the same object again.

    What a pipeline within this one has just noted stays.
    """
    if not error.__dict__.pop("_infeed_fresh", False) and hasattr(error, "__notes__"):
        error.__notes__ = [note for note in error.__notes__ if not note.startswith(NOTE)]
    return error


class Maker:
    """Makes samples for one worker; the generators in it are its own."""

    def __init__(self, recipe: Recipe, kind: Kind):
        self.recipe = recipe
        self.kind = kind
        self.watching = True
        self.globals = GlobalGenerators(recipe.seed)
        self._rng = KeyedRng(recipe.seed)
        self._suspicions: dict[int, int] = {}
        self._last = len(recipe.stages) + 1 + len(recipe.batch_stages)

    def disturbs(self) -> bool:
        """Whether any stage is known to use a global generator."""
        return any(self.globals.used_by(stage) for stage in range(self._last + 1))

    # -- samples

    def samples(self, rows: Rows, *, careful: bool = False, upto: int | None = None) -> list[Any]:
        """Fetch and map samples; `upto` leaves out the last stages. `careful`: one by one, marked."""
        stages = self.recipe.stages[:upto]
        if careful:
            return self._one_by_one(rows, stages)
        samples = self.fetch(rows)
        for number, stage in enumerate(stages, 1):
            samples = self.apply(number, stage, samples, rows)
        return samples

    def _one_by_one(self, rows: Rows, stages: Sequence[Stage]) -> list[Any]:
        """The index of the sample in hand is marked, so that whoever finds us dead knows which it was."""
        samples = []
        for row, position in enumerate(rows.positions):
            index = rows.indices[row]
            rows.indices[row] = ~index
            one = Rows(rows.epoch, np.array([index], np.int64), [position])
            try:
                made = self.fetch(one)
                for number, stage in enumerate(stages, 1):
                    made = self.apply(number, stage, made, one)
            except RowFailed as failed:
                raise RowFailed(row, failed.stage) from failed.__cause__
            finally:
                rows.indices[row] = index
            samples.append(made[0])
        return samples

    def fetch(self, rows: Rows) -> list[Any]:
        """The samples of the source."""
        source = self.recipe.source
        assert isinstance(source, Source)
        with _Watch(self, 0, "the source", active=not source.thread_safe):
            if not self.globals.used_by(0):
                return self._fetch_rows(source, rows, 0, len(rows.indices))
            samples = []
            for row in range(len(rows.positions)):
                self._seed(0, rows, row)
                samples.extend(self._fetch_rows(source, rows, row, row + 1))
            return samples

    def _fetch_rows(self, source: Source, rows: Rows, low: int, high: int) -> list[Any]:
        try:
            return source.fetch(rows.indices[low:high], rows.epoch)
        except USERS_FAULT as error:
            if high - low == 1:
                raise RowFailed(low, "the source") from _unannotated(error)
            for row in range(low, high):
                self._fetch_rows(source, rows, row, row + 1)
            error.add_note("raised for a whole batch, and by none of its samples alone")
            rows.name_all(error, "the source")
            raise

    def apply(
        self, number: int, stage: Stage, samples: list[Any], rows: Rows, outs: list[Any] | None = None
    ) -> list[Any]:
        """One stage over all samples; `outs` are the places an in-place map writes to."""
        made: list[Any] = []
        add, fn = made.append, stage.fn
        with _Watch(self, number, stage):
            try:
                if not stage.rng and stage.out is None and not self.globals.used_by(number):
                    for sample in samples:
                        add(fn(sample))
                else:
                    for row, sample in enumerate(samples):
                        add(self._call(number, stage, sample, rows, row, outs))
            except USERS_FAULT as error:
                raise RowFailed(len(made), repr(stage)) from _unannotated(error)
        return made

    def _call(self, number: int, stage: Stage, sample: Any, rows: Rows, row: int, outs: list[Any] | None) -> Any:
        keywords: dict[str, Any] = {}
        self._seed(number, rows, row)
        if stage.rng:
            keywords["rng"] = self._rng.at(rows.epoch, rows.positions[row], number)
        if stage.out is None:
            return stage.fn(sample, **keywords)
        keywords["out"] = outs[row] if outs else _fresh(stage.out, Heap())
        return _result(stage, stage.fn(sample, **keywords), keywords["out"])

    # -- batches

    def batch(self, rows: Rows, memory: Memory, *, careful: bool = False) -> Any:
        """One micro-batch, finished."""
        if self.recipe.gathers and not careful:
            columns = self.recipe.columns()
            batch = columns.tree.build([column.take(rows.indices) for column in columns.columns])
            return self._finish(batch, rows, memory)
        samples = self.samples(rows, careful=careful)
        if not careful:
            return self.collate(samples, rows, memory)
        known = Rows(rows.epoch, rows.indices.copy(), rows.positions)
        rows.indices[:] = ~known.indices  # all marked: it is the batch as a whole that is in hand
        try:
            return self.collate(samples, known, memory)
        finally:
            rows.indices[:] = known.indices

    def collate(self, samples: list[Any], rows: Rows, memory: Memory) -> Any:
        """One micro-batch out of samples."""
        stage = len(self.recipe.stages) + 1
        with _Watch(self, stage, "collate", active=isinstance(self.recipe.collate, Function)):
            self._seed(stage, rows, 0)
            try:
                batch = self.recipe.collate(samples, memory)
            except USERS_FAULT as error:
                rows.name_all(_unannotated(error), "collate")
                raise
        return self._finish(batch, rows, memory)

    def _finish(self, batch: Any, rows: Rows, memory: Memory) -> Any:
        """The maps over whole batches."""
        for number, stage in enumerate(self.recipe.batch_stages, len(self.recipe.stages) + 2):
            keywords: dict[str, Any] = {}
            with _Watch(self, number, stage):
                self._seed(number, rows, 0)
                if stage.rng:
                    keywords["rng"] = self._rng.at(rows.epoch, rows.positions[0], number)
                if stage.out is not None:
                    keywords["out"] = _fresh(stage.out, memory, (len(rows.indices),))
                try:
                    batch = _result(stage, stage.fn(batch, **keywords), keywords.get("out"))
                except USERS_FAULT as error:
                    rows.name_all(_unannotated(error), repr(stage))
                    raise
        return batch

    # -- global generators

    def _seed(self, stage: int, rows: Rows, row: int) -> None:
        if self.globals.used_by(stage):
            self.globals.seed(rows.epoch, rows.positions[row], stage)

    def noticed(self, stage: int, name: str, used: tuple[str, ...]) -> None:
        """A stage moved a global generator's state. Threads share these, so there it is refused.

        In a thread it may have been someone else, so it must happen a few times in a row to be believed.
        """
        if self.kind != "thread":
            if self.globals.note_use(stage, used):
                raise Noticed
            return
        self._suspicions[stage] = self._suspicions.get(stage, 0) + 1
        if self._suspicions[stage] < SURE:
            raise Noticed
        advice = "let the function take a parameter `rng`" if stage else "do it in a map with a parameter `rng`"
        raise PipelineError(
            f"{name} draws from the global generator of {' and '.join(used)}, which all threads share, "
            f"so the stream could not be repeated; {advice}, or use mode='processes'"
        )


class _Watch:
    """Looks whether a block moved a global generator; a plain class, because it is on the hot path."""

    __slots__ = ("_active", "_before", "_maker", "_name", "_stage")

    def __init__(self, maker: Maker, stage: int, name: str | Stage, *, active: bool = True):
        self._maker, self._stage, self._name = maker, stage, name
        self._active = active and maker.watching

    def __enter__(self) -> None:
        if self._active:
            self._before = self._maker.globals.look()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._active and kind is None:
            used = self._maker.globals.moved(self._before)
            if used:
                self._maker.noticed(self._stage, str(self._name), used)


def _fresh(layout: Layout, memory: Memory, rows: tuple[int, ...] = ()) -> Any:
    """Arrays of the declared shapes to write into."""
    made = [memory.new((*rows, *field.shape), field.dtype) for field in layout.fields if field.dtype]
    return layout.tree.build(made)


def _result(stage: Stage, returned: Any, out: Any) -> Any:
    """What a stage gives: what it returned, or the `out` it has written into."""
    if stage.out is None:
        return returned
    if returned is not None and returned is not out:
        raise PipelineError(
            f"{stage.name} has an `out` to write into, but returned a {type(returned).__name__}; "
            "it must return nothing (or `out`)"
        )
    return out
