"""The chain a user writes: a source, an order, maps and filters, a batch. Immutable, lazy, printable.

Stages that say which samples come when (take, shuffle, shard, ...) and stages that say what becomes of a
sample (map, filter, ...) may be written in any order before `batch`: the randomness of a map belongs to the
sample's final position.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from infeed.collate import Collate, Stack, as_collate
from infeed.errors import PipelineError
from infeed.fields import Rename, Select
from infeed.nested import PipelineSource
from infeed.order import (
    BlockShuffled,
    Chain,
    Given,
    Order,
    Repeat,
    Shard,
    Shuffled,
    Slice,
    Subset,
    Weighted,
    as_seed,
    balanced_weights,
    fold_parts,
    split_parts,
)
from infeed.order.counts import as_count
from infeed.plan import Last, Plan
from infeed.recipe import Recipe
from infeed.sources import ArraysSource, IterableSource, Source, as_source, window
from infeed.stages import Stage

Seed = int | np.random.Generator | np.random.RandomState


@dataclass(frozen=True)
class Batching:
    """How samples are put together: the plan, what becomes of a short last step, and the collate."""

    plan: Plan
    last: Last
    collate: Collate
    fixed_shapes: bool = False


@dataclass(frozen=True, repr=False)
class Pipeline:
    """A source and what is done with its samples.

    >>> import infeed
    >>> pipeline = infeed.arrays(x=np.arange(10)).shuffle(seed=7).batch(4)
    >>> len(pipeline)
    3
    >>> print(pipeline)
    arrays of 10 samples {x: int64[]}
      .shuffle(seed=7)
      .batch(4)
      3 steps of 4 samples
    """

    source: Source | IterableSource
    orders: tuple[Order, ...] = ()
    stages: tuple[Stage, ...] = ()
    batching: Batching | None = None
    batch_stages: tuple[Stage, ...] = ()
    chosen_seed: int | None = None
    written: tuple[str, ...] = ()

    # -- which samples, and when

    def take(self, count: int) -> Pipeline:
        """The first `count` samples.

        >>> import infeed
        >>> list(infeed.source([1, 2, 3]).take(2))
        [1, 2]
        """
        return self._ordered(Slice(stop=as_count("the count of .take()", count, least=0)), f"take({count})")

    def skip(self, count: int) -> Pipeline:
        """All but the first `count` samples.

        >>> import infeed
        >>> list(infeed.source([1, 2, 3]).skip(2))
        [3]
        """
        return self._ordered(Slice(start=as_count("the count of .skip()", count, least=0)), f"skip({count})")

    def subset(self, indices: Sequence[int]) -> Pipeline:
        """The samples at these positions, in this order.

        >>> import infeed
        >>> list(infeed.source([1, 2, 3]).subset([2, 0]))
        [3, 1]
        """
        return self._ordered(Subset(indices), f"subset({len(indices)} indices)")

    def shard(self, index: int, count: int) -> Pipeline:
        """The `index`-th of `count` disjoint shares.

        >>> import infeed
        >>> list(infeed.source([1, 2, 3, 4, 5]).shard(1, 2))
        [2, 4]
        """
        return self._ordered(Shard(index, count), f"shard({index}, {count})")

    def repeat(self, times: int) -> Pipeline:
        """The samples `times` over, as one epoch.

        >>> import infeed
        >>> list(infeed.source([1, 2]).repeat(2))
        [1, 2, 1, 2]
        """
        return self._ordered(Repeat(times), f"repeat({times})")

    def split(self, *parts: float | int, seed: Seed | None = None) -> tuple[Pipeline, ...]:
        """Disjoint parts by share or by count; contiguous, or drawn at random with `seed`.

        >>> import infeed
        >>> train, test = infeed.arrays(np.arange(10)).split(0.8, 0.2, seed=1)
        >>> len(train), len(test)
        (8, 2)
        """
        number = None if seed is None else as_seed(seed)
        orders = split_parts(self._samples("split"), parts, number)
        shown = ", ".join(map(str, parts))
        return tuple(
            self._ordered(order, f"split({shown}, seed={number})[{place}]") for place, order in enumerate(orders)
        )

    def folds(self, count: int, seed: Seed | None = None) -> list[tuple[Pipeline, Pipeline]]:
        """`count` pairs of (training, validation) for cross-validation.

        >>> import infeed
        >>> [len(validation) for _, validation in infeed.arrays(np.arange(10)).folds(3)]
        [4, 3, 3]
        """
        number = None if seed is None else as_seed(seed)
        pairs = fold_parts(self._samples("folds"), count, number)
        return [
            (
                self._ordered(train, f"folds({count})[{place}].train"),
                self._ordered(validation, f"folds({count})[{place}].validation"),
            )
            for place, (train, validation) in enumerate(pairs)
        ]

    def shuffle(self, seed: Seed = 0, block: int | None = None) -> Pipeline:
        """Another order each epoch, the same for the same seed and epoch.

        `block=1000` keeps neighbours together, for data that is slow to read out of order: runs of 1000
        samples are shuffled, and the samples within each run.

        >>> import infeed
        >>> sorted(infeed.source([1, 2, 3]).shuffle(seed=7))
        [1, 2, 3]
        """
        number = as_seed(seed)
        order: Order = Shuffled(number) if block is None else BlockShuffled(number, block)
        text = f"shuffle(seed={number})" if block is None else f"shuffle(seed={number}, block={block})"
        return replace(self._ordered(order, text), chosen_seed=self._seed_or(number))

    def weighted(self, weights: Any, samples: int | None = None, seed: Seed = 0) -> Pipeline:
        """Draw with replacement, sample i with probability proportional to `weights[i]`.

        >>> import infeed
        >>> set(infeed.source(["a", "b"]).weighted([1, 0], samples=4))
        {'a'}
        """
        number = as_seed(seed)
        made = self._ordered(Weighted(weights, samples, number), f"weighted(seed={number})")
        return replace(made, chosen_seed=self._seed_or(number))

    def balanced(self, labels: Any, samples: int | None = None, seed: Seed = 0) -> Pipeline:
        """Draw with replacement so that every class in `labels` is equally likely.

        >>> import infeed
        >>> len(infeed.source(["a", "b", "c"]).balanced([0, 0, 1], samples=8))
        8
        """
        number = as_seed(seed)
        order = Weighted(balanced_weights(labels), samples, number)
        return replace(self._ordered(order, f"balanced(seed={number})"), chosen_seed=self._seed_or(number))

    def order(self, indices: Sequence[int] | Callable[[int], Sequence[int]]) -> Pipeline:
        """Your own sequence of indices, or a function that gives one for each epoch.

        >>> import infeed
        >>> list(infeed.source(["a", "b", "c"]).order([2, 2, 0]))
        ['c', 'c', 'a']
        """
        return self._ordered(Given(indices), "order(...)")

    def seed(self, seed: Seed) -> Pipeline:
        """The seed of the generators that maps are given, when it is not to be the shuffle's.

        >>> import infeed
        >>> infeed.source([1, 2]).shuffle(seed=1).seed(2).random_seed
        2
        """
        number = as_seed(seed)
        return replace(self, chosen_seed=number, written=(*self.written, f"seed({number})"))

    # -- what becomes of a sample

    def map(self, fn: Callable[..., Any], out: Any = None) -> Pipeline:
        """Apply `fn(sample)`, or `fn(sample, rng)`, to every sample, in the workers.

        A parameter named `rng` gets a numpy generator that belongs to this sample in this epoch. A
        parameter named `out` gets arrays to write the result into, which `out=` declares: a tree of
        `(shape, dtype)`.

        >>> import infeed
        >>> list(infeed.source([1, 2, 3]).map(lambda sample: sample * 10))
        [10, 20, 30]
        """
        return self._staged(Stage.of("map", fn, out))

    def filter(self, fn: Callable[..., Any]) -> Pipeline:
        """Keep the samples for which `fn(sample)` is true. The pipeline then has no `len`.

        >>> import infeed
        >>> pipeline = infeed.source([1, 2, 3, 4]).filter(lambda sample: sample % 2 == 0).batch(2)
        >>> with infeed.Loader(pipeline, workers=0) as loader:
        ...     [batch.tolist() for batch in loader]
        [[2, 4]]
        """
        return self._staged(Stage.of("filter", fn))

    def select(self, *names: str) -> Pipeline:
        """Only these fields of dict samples.

        >>> import infeed
        >>> infeed.arrays(x=[1, 2], y=[3, 4]).select("y")[0]
        {'y': np.int64(3)}
        """
        if not names:
            raise PipelineError("select() needs the name of at least one field")
        return self._fields(Select(names), f"select({', '.join(names)})")

    def rename(self, **new_names: str) -> Pipeline:
        """Other names for fields: `rename(old="new")`.

        >>> import infeed
        >>> infeed.arrays(x=[1, 2]).rename(x="label")[0]
        {'label': np.int64(1)}
        """
        return self._fields(Rename(tuple(new_names.items())), f"rename({new_names})")

    def window(self, size: int, stride: int = 1) -> Pipeline:
        """Runs of `size` samples that follow each other, `stride` apart, each as one sample.

        >>> import infeed
        >>> infeed.arrays([1, 2, 3, 4]).window(3)[1]
        array([2, 3, 4])
        """
        made = window(self.as_source(), size, stride)
        return Pipeline(made, chosen_seed=self.chosen_seed, written=(f"window({size}, stride={stride})",))

    # -- batches

    def batch(
        self,
        size: int | Plan,
        *,
        drop_last: bool = False,
        last: Last | None = None,
        collate: str | Collate | Callable[[builtins.list[Any]], Any] = "stack",
        fixed_shapes: bool = False,
    ) -> Pipeline:
        """Put samples together, `size` at a time, or a whole step of a `Plan`.

        `last` says what becomes of a short last step: `"keep"`, `"drop"` (also `drop_last=True`), or
        `"wrap"`. `collate` is `"stack"`, `"pad"`, `"concat"`, `"list"`, one of the collate objects, or your
        function of a list of samples. `fixed_shapes=True` makes a sample of another shape than the first an
        error.

        >>> import infeed
        >>> len(infeed.arrays(np.zeros(10)).batch(4)), len(infeed.arrays(np.zeros(10)).batch(4, drop_last=True))
        (3, 2)
        """
        if self.batching is not None:
            raise PipelineError("this pipeline is batched already; for steps of several micro-batches give a Plan")
        plan = size if isinstance(size, Plan) else Plan(as_count("the batch size", size))
        if drop_last and last not in (None, "drop"):
            raise PipelineError(f"drop_last=True and last={last!r} contradict each other")
        chosen: Last = "drop" if drop_last else last or "keep"
        made_by = as_collate(collate)
        extras = [f"last={chosen!r}"] if chosen != "keep" else []
        extras += [] if isinstance(made_by, Stack) else [f"collate={made_by!r}"]
        extras += ["fixed_shapes=True"] if fixed_shapes else []
        text = f"batch({', '.join([str(size), *extras])})"
        batching = Batching(plan, chosen, made_by, fixed_shapes)
        made = replace(self, batching=batching, written=(*self.written, text))
        made._check_plan()
        return made

    def map_batch(self, fn: Callable[..., Any], out: Any = None) -> Pipeline:
        """Apply `fn(batch)`, or `fn(batch, rng)`, to every micro-batch, in the workers.

        A parameter named `out` gets arrays to write into, one row per sample; `out=` declares a row of each.

        >>> import infeed
        >>> pipeline = infeed.arrays([1, 2, 3, 4]).batch(2).map_batch(lambda batch: batch * 10)
        >>> with infeed.Loader(pipeline, workers=0) as loader:
        ...     [batch.tolist() for batch in loader]
        [[10, 20], [30, 40]]
        """
        if self.batching is None:
            raise PipelineError(".map_batch() comes after .batch(); before it there are only samples, see .map()")
        stage = Stage.of("map_batch", fn, out)
        return replace(self, batch_stages=(*self.batch_stages, stage), written=(*self.written, repr(stage)))

    # -- looking

    @property
    def scanned(self) -> bool:
        """Whether its length can only be found by going through it: filters and iterables."""
        return isinstance(self.source, IterableSource) or any(s.kind == "filter" for s in self.stages)

    @property
    def plan(self) -> Plan:
        """The plan; a `PipelineError` before `.batch()`."""
        return self._batching().plan

    @property
    def random_seed(self) -> int:
        """The seed that maps' generators are keyed by: chosen, or the first shuffle's, or 0."""
        return 0 if self.chosen_seed is None else self.chosen_seed

    def chain(self) -> Chain:
        """From positions of an epoch to indices of the source.

        >>> import infeed
        >>> infeed.source([1, 2, 3]).skip(1).chain().range(0, 2, epoch=0)
        array([1, 2])
        """
        if isinstance(self.source, IterableSource):
            return Chain((), 0)
        return Chain(self.orders, len(self.source))

    def __len__(self) -> int:
        """Steps of an epoch; before `.batch()`, samples."""
        count = self._samples("len()")
        if any(stage.kind == "filter" for stage in self.stages):
            raise TypeError("a filtered pipeline has no len: how many samples remain is known at its end")
        return count if self.batching is None else self.batching.plan.steps(count, self.batching.last)

    def __getitem__(self, position: int) -> Any:
        """One sample as epoch 0 has it, to look at; before `.batch()`."""
        if self.batching is not None:
            raise PipelineError("[...] is for samples, before .batch(); for batches see Loader(...).batch_at()")
        return self.as_source()[position]

    def __iter__(self) -> Iterator[Any]:
        """All samples as epoch 0 has them; before `.batch()`. Training loops use a `Loader`."""
        if self.batching is not None:
            raise TypeError("a pipeline is a description; iterate over infeed.Loader(pipeline)")
        return iter(self.as_source())

    def recipe(self, on_error: str = "raise") -> Recipe:
        """All that workers need to know.

        >>> import infeed
        >>> infeed.source([1, 2, 3]).batch(2).recipe().size
        3
        """
        batching = self._batching()
        size = 0 if isinstance(self.source, IterableSource) else self.chain().size
        return Recipe(
            self.source,
            self.stages,
            batching.collate,
            self.batch_stages,
            batching.plan,
            size,
            batching.last,
            self.random_seed,
            on_error,
            batching.fixed_shapes,
        )

    def as_source(self) -> Source:
        """The samples of this pipeline as a source for another one.

        >>> import infeed
        >>> infeed.source([1, 2, 3]).map(lambda sample: -sample).as_source()[1]
        -2
        """
        self._not_batched("as_source()")
        if isinstance(self.source, IterableSource) or self.scanned:
            raise PipelineError("filters and iterables give no random access; go through them with a Loader")
        if not self.orders and not self.stages:
            return self.source
        alone = replace(self, batching=Batching(Plan(1), "keep", Stack()))
        return PipelineSource(alone.recipe(), self.chain(), "" if self.stages else self.source.fields)

    def __repr__(self) -> str:
        lines = [_describe(self.source), *(f"  .{text}" for text in self.written)]
        if self.batching is not None:
            plan = self.batching.plan
            steps = "an unknown number of" if self.scanned else str(len(self))
            lines.append(f"  {steps} steps of {plan.rows_per_step} samples")
        return "\n".join(lines)

    # -- within

    def _seed_or(self, number: int) -> int:
        return number if self.chosen_seed is None else self.chosen_seed

    def _batching(self) -> Batching:
        if self.batching is None:
            raise PipelineError("the pipeline has no .batch(); add for instance .batch(64)")
        return self.batching

    def _not_batched(self, what: str) -> None:
        if self.batching is not None:
            raise PipelineError(
                f"{what} is for samples, and this pipeline is batched already; put it before .batch()"
            )

    def _samples(self, what: str) -> int:
        if isinstance(self.source, IterableSource):
            raise TypeError(f"{what}: data without random access has no length that is known beforehand")
        return self.chain().size

    def _ordered(self, order: Order, text: str) -> Pipeline:
        self._not_batched(text)
        if isinstance(self.source, IterableSource):
            raise PipelineError(f".{text} needs random access; do it in the function that the iterable calls")
        if any(stage.kind == "filter" for stage in self.stages):
            raise PipelineError(f".{text} after .filter() would need the length of what remains; put it before")
        made = replace(self, orders=(*self.orders, order), written=(*self.written, text))
        made.chain()  # says at once what does not fit
        return made

    def _staged(self, stage: Stage) -> Pipeline:
        self._not_batched(repr(stage))
        if self.stages and self.stages[-1].out is not None:
            raise PipelineError("a map with out= writes into the batch itself, so it must be the last one")
        return replace(self, stages=(*self.stages, stage), written=(*self.written, repr(stage)))

    def _fields(self, change: Select | Rename, text: str) -> Pipeline:
        """On plain arrays the columns themselves are chosen; elsewhere it is a map like any other."""
        self._not_batched(text)
        if isinstance(self.source, ArraysSource) and not self.stages:
            return replace(self, source=change.of_arrays(self.source), written=(*self.written, text))
        return replace(self._staged(Stage("map", change, text)), written=(*self.written, text))

    def _check_plan(self) -> None:
        batching = self._batching()
        if not self.scanned:
            batching.plan.check(self.chain().size, batching.last)
        elif batching.last == "wrap":
            raise PipelineError("last='wrap' needs to know the length beforehand; use 'keep' or 'drop' here")
        elif batching.last == "keep" and not batching.plan.is_contiguous:
            raise PipelineError(
                "the number of samples is not known beforehand, so last='keep' could give replicas unequal "
                "steps; use drop_last=True"
            )


def _describe(source: Source | IterableSource) -> str:
    if isinstance(source, IterableSource):
        return f"iterable in {len(source.shards)} shard{'s' * (len(source.shards) > 1)}"
    kind = type(source).__name__.removesuffix("Source").lower().replace("items", "source")
    fields = f" {source.fields}" if source.fields else ""
    return f"{kind} of {len(source)} samples{fields}"


def as_pipeline(data: Any) -> Pipeline:
    """A pipeline as it is; anything else that can be a source as a pipeline.

    >>> len(as_pipeline(np.zeros((3, 2))))
    3
    """
    return data if isinstance(data, Pipeline) else Pipeline(as_source(data))


def pipelines(data: Iterable[Any]) -> builtins.list[Source]:
    """Several of them as sources, for zip, concat and choose."""
    sources = []
    for item in data:
        source = item.as_source() if isinstance(item, Pipeline) else as_source(item)
        if isinstance(source, IterableSource):
            raise PipelineError("zip, concat and choose need random access, which an iterable does not have")
        sources.append(source)
    return sources
