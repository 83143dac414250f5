"""The worker's part in scanned pipelines: run filters over positions, read shards, finish staged samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from infeed.readers import ShardReader
from infeed.recipe import Recipe
from infeed.samples import USERS_FAULT, IntArray, Maker, RowFailed, Rows, annotate
from infeed.sources import IterableSource
from infeed.tasks import BadRow, Reply, Task

SHARD_BITS = 40


class Sifter:
    """Finds the samples that remain, and makes the rest of the stages for those that a batch is made of."""

    def __init__(self, recipe: Recipe, maker: Maker, readers: dict[str, ShardReader], who: str):
        self._who = who
        self.recipe = recipe
        self.maker = maker
        self._readers = readers

    def sift(self, task: Task, marks: IntArray) -> Reply:
        """The survivors of a run of positions, with their positions and indices, and the bad among them."""
        places = range(task.first_step, task.first_step + len(marks))
        rows = Rows(task.epoch, marks.copy(), places)
        if not task.careful:
            try:
                samples, kept = self._keep(self.maker.fetch(rows), rows)
                return Reply(task.id, "done", (samples, list(kept.positions), kept.indices, []))
            except RowFailed:
                pass  # found again below, one by one: the others of the run are not to suffer
        kept_samples, places_kept, bad = self._one_by_one(task, rows, marks, None)
        positions = [rows.positions[row] for row in places_kept]
        return Reply(task.id, "done", (kept_samples, positions, rows.indices[places_kept], bad))

    def _keep(self, samples: list[Any], rows: Rows) -> tuple[list[Any], Rows]:
        """Maps and filters up to the last filter; the survivors and their places."""
        origin = list(range(len(samples)))
        for number, stage in enumerate(self.recipe.stages[: self.recipe.while_finding], 1):
            try:
                made = self.maker.apply(number, stage, samples, rows)
            except RowFailed as failed:
                raise RowFailed(origin[failed.row], failed.stage) from failed.__cause__
            if stage.kind == "map":
                samples = made
                continue
            kept = [row for row, keep in enumerate(made) if keep]
            samples = [samples[row] for row in kept]
            origin = [origin[row] for row in kept]
            rows = Rows(rows.epoch, rows.indices[kept], [rows.positions[row] for row in kept])
        return samples, rows

    def _one_by_one(
        self, task: Task, rows: Rows, marks: IntArray, samples: list[Any] | None
    ) -> tuple[list[Any], list[int], list[BadRow]]:
        """One sample at a time, the one in hand marked; what raises is told, and left out.

        Rows in `task.replaced` have ended a worker before and are not touched again.
        """
        made: list[Any] = []
        places: list[int] = []
        bad = []
        for row, position in enumerate(rows.positions):
            if row in task.replaced:
                continue
            one = rows.part(row, row + 1)
            marks[row] = ~one.indices[0]
            try:
                kept, _ = self._keep([samples[row]] if samples else self.maker.fetch(one), one)
                made.extend(kept)
                places.extend([row] * len(kept))
            except RowFailed as failed:
                error = one.explain(failed)
                annotate(error, f"in {self._who}")
                bad.append(BadRow(row, int(one.indices[0]), position, error))
            marks[row] = one.indices[0]
        return made, places, bad

    def read(self, task: Task, marks: IntArray) -> Reply:
        """Samples that remain of the next of a shard, the bad, whether it has ended, and its state before."""
        source = self.recipe.source
        assert isinstance(source, IterableSource)
        reader = self._readers.pop(task.shard, None)
        if reader is None or reader.epoch != task.epoch or reader.asked != task.low:
            reader = ShardReader(source, task.shard, task.epoch)
            reader.seek(task.low, task.staged[0] if task.staged else None)
        state = reader.state()
        try:
            samples, ended = reader.read(task.high - task.low)
        except USERS_FAULT as error:
            shard = f"shard {task.shard!r} of " if len(source.shards) > 1 else ""
            annotate(error, f"sample {reader.count} of {shard}the iterable, epoch {task.epoch}")
            raise
        self._readers[task.shard] = reader
        first = (source.shards.index(task.shard) << SHARD_BITS) + task.low
        places = range(first, first + len(samples))
        rows = Rows(task.epoch, np.arange(task.low, task.low + len(samples)), places)
        bad: list[BadRow] = []
        try:
            if task.careful:
                raise RowFailed(0, "")
            kept_samples, kept = self._keep(samples, rows)
        except RowFailed:
            kept_samples, places_kept, bad = self._one_by_one(task, rows, marks, samples)
            kept = Rows(task.epoch, rows.indices[places_kept], [places[row] for row in places_kept])
            for row in bad:
                annotate(row.error, f"it is sample {row.index} of shard {task.shard!r}")
        return Reply(task.id, "done", (kept_samples, list(kept.positions), kept.indices, bad, ended, state))

    def rest(self, task: Task, staged: Sequence[Any]) -> tuple[list[Any], Rows]:
        """The samples of a batch, from where they are staged, through the stages after the last filter."""
        samples, rows = _joined(task.epoch, staged)
        after = self.recipe.while_finding
        try:
            for number, stage in enumerate(self.recipe.stages[after:], after + 1):
                samples = self.maker.apply(number, stage, samples, rows)
        except RowFailed as failed:
            raise rows.explain(failed) from None
        return samples, rows


def _joined(epoch: int, staged: Sequence[Any]) -> tuple[list[Any], Rows]:
    """The samples of several staged runs, in order."""
    samples: list[Any] = []
    positions: list[int] = []
    indices = []
    for (made, places, origin), low, high in staged:
        samples.extend(made[low:high])
        positions.extend(places[low:high])
        indices.append(origin[low:high])
    return samples, Rows(epoch, np.concatenate(indices), positions)
