"""What a stream must hold, worked out sample by sample without slots, tasks or workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.collate import Function, Heap, List, Stack
from infeed.evaluating import rows_of
from infeed.pipeline import Pipeline
from infeed.plan import MicroBatches
from infeed.recipe import Recipe
from infeed.sources import IterableSource, Source
from infeed.stages import Stage
from infeed.testing.comparing import difference


@dataclass(frozen=True)
class Dropped:
    """Stands where a filter has taken a sample out."""


@dataclass(frozen=True)
class Marking:
    """A stage that marks what a filter drops instead of dropping it, and leaves what is marked alone.

    >>> Marking(Stage.of("filter", lambda x: x > 2))(1)
    Dropped()
    >>> Marking(Stage.of("map", lambda x: x + 1))(Dropped())
    Dropped()
    """

    stage: Stage

    def __call__(self, sample: Any, **given: Any) -> Any:
        if isinstance(sample, Dropped):
            return sample
        made = self.stage.fn(sample, **given)
        if self.stage.kind == "filter":
            return sample if made else Dropped()
        return made


def check_complete(pipeline: Pipeline, on_error: str, epochs: list[list[Any]]) -> None:
    """`AssertionError` unless the batches of these epochs hold every sample that they must, once.

    >>> import infeed
    >>> check_complete(infeed.arrays([5, 6, 7]).batch(2), "raise", [[np.array([5, 6]), np.array([7])]])
    """
    recipe = pipeline.recipe(on_error)
    if on_error == "replace" or recipe.batch_stages or isinstance(recipe.collate, Function):
        return
    if isinstance(recipe.source, IterableSource):
        _check_count(recipe, epochs)
        return
    samples_by_step = _filtered if recipe.scanned else _steps
    for epoch, batches in enumerate(epochs):
        steps = list(samples_by_step(pipeline, recipe, epoch))
        if difference(steps, list(samples_by_step(pipeline, recipe, epoch))):
            return  # it draws from generators that only a runner seeds anew
        if len(steps) != len(batches):
            raise AssertionError(f"epoch {epoch} has {len(batches)} steps; its samples make {len(steps)}")
        for step, (batch, samples) in enumerate(zip(batches, steps, strict=True)):
            found = difference(batch, _collated(recipe, samples))
            if found:
                raise AssertionError(f"epoch {epoch}, step {step} came otherwise than its samples say: {found}")


def _steps(pipeline: Pipeline, recipe: Recipe, epoch: int) -> Iterator[list[Any]]:
    """The samples of each step, by what the plan says of their positions."""
    source = _before_batching(pipeline)
    plan, size, last = recipe.plan, recipe.size, recipe.last
    times = np.zeros(size, np.int64)
    for step in range(plan.steps(size, last)):
        positions = plan.positions(step, size, last)
        np.add.at(times, positions % size, 1)
        yield source.fetch(positions, epoch)
    if plan.is_contiguous and last == "keep" and not (times == 1).all():
        odd = int(np.argmax(times != 1))
        raise AssertionError(f"position {odd} of epoch {epoch} comes {times[odd]} times")


def _filtered(pipeline: Pipeline, recipe: Recipe, epoch: int) -> Iterator[list[Any]]:
    """The samples of each step of a filtered pipeline: those that remain, in order."""
    marked = tuple(replace(stage, kind="map", fn=Marking(stage)) for stage in pipeline.stages)
    source = _before_batching(replace(pipeline, stages=marked))
    samples = source.fetch(np.arange(recipe.size, dtype=np.int64), epoch)
    left = [sample for sample in samples if not isinstance(sample, Dropped)]
    plan, size = recipe.plan, recipe.plan.samples_per_step
    for start in range(0, len(left), size):
        part = left[start : start + size]
        if len(part) == size:
            yield [part[position] for position in plan.positions(0, size, "drop").tolist()]
        elif recipe.last == "keep":
            yield part


def _before_batching(pipeline: Pipeline) -> Source:
    return replace(pipeline, batching=None, batch_stages=()).as_source()


def _collated(recipe: Recipe, samples: list[Any]) -> Any:
    """The batch of a step, put together here: rows at once, all else by micro-batch."""
    if isinstance(recipe.collate, Stack):
        return recipe.collate(samples, Heap())
    size = recipe.plan.micro_batch
    made = [recipe.collate(samples[low : low + size], Heap()) for low in range(0, len(samples), size)]
    return made[0] if recipe.plan.micro_batches_per_step == 1 else MicroBatches(made)


def _check_count(recipe: Recipe, epochs: list[list[Any]]) -> None:
    """Of an iterable: as many samples as its shards hold together."""
    source = recipe.source
    assert isinstance(source, IterableSource)
    countable = isinstance(recipe.collate, Stack | List) and recipe.plan.is_contiguous
    if recipe.stages or not countable:
        return
    for epoch, batches in enumerate(epochs):
        there = sum(sum(1 for _ in source.open(shard, epoch)) for shard in source.shards)
        if recipe.last == "drop":
            there -= there % recipe.plan.samples_per_step
        came = sum(map(rows_of, batches))
        if came != there:
            raise AssertionError(f"epoch {epoch} has {came} samples; its shards hold {there}")
