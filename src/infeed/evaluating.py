"""Looking at batches and evaluating with a loader: any batch again, collect, average, measure, timer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from infeed.errors import PipelineError
from infeed.filling import copied, join_rows
from infeed.plan import MicroBatches
from infeed.stream import Stream
from infeed.streaming import Settings
from infeed.tasks import BadRow
from infeed.tensors import is_tensor, to_array
from infeed.trees import Tree, tree_map
from infeed.workers import InlineCrew

if TYPE_CHECKING:
    from infeed.loader import Loader


@dataclass(frozen=True)
class BadSample:
    """A sample that was left out, and why."""

    index: int
    epoch: int
    position: int
    error: BaseException


def bad_samples(loader: Loader, found: list[tuple[int, BadRow]], place: Any) -> list[BadSample]:
    """What the caller has met so far, in the order of the stream; workers may be epochs ahead."""
    size = loader.plan.samples_per_step
    met = [
        BadSample(bad.index, epoch, bad.position, bad.error)
        for epoch, bad in found
        if epoch < place.epoch
        or (epoch == place.epoch and (loader.recipe.scanned or bad.position // size < place.step))
    ]
    return sorted(met, key=lambda bad: (bad.epoch, bad.position))


def indices_at(loader: Loader, epoch: int, step: int) -> NDArray[np.int64]:
    """The source's indices of a step."""
    recipe = loader.recipe
    if recipe.scanned:
        raise PipelineError(
            "with a filter or over an iterable, the samples of a step are known only by going through the epoch; "
            "let the samples carry their index"
        )
    _check_step(loader, epoch, step)
    positions = recipe.plan.positions(step, recipe.size, recipe.last)
    return loader.pipeline.chain().at(positions, epoch)


def batch_at(loader: Loader, epoch: int, step: int) -> Any:
    """Make one batch here, by the same code that workers run."""
    if loader.recipe.scanned:
        return _scanned_batch_at(loader, epoch, step)
    _check_step(loader, epoch, step)
    crew = InlineCrew()
    stream = Stream(crew, loader.recipe, loader.pipeline.chain(), Settings(prefetch=1))
    stream.restart(epoch, step)
    crew.wait(stream.ready)
    return stream.next().next()


def _scanned_batch_at(loader: Loader, epoch: int, step: int) -> Any:
    """Go through the epoch up to the step."""
    number = -1
    with type(loader)(loader.pipeline, workers=0) as again:
        again.set_epoch(epoch)
        for number, batch in enumerate(again):
            if number == step:
                return copied(batch)
    raise PipelineError(f"epoch {epoch} has {number + 1} steps, so there is no step {step}")


def _check_step(loader: Loader, epoch: int, step: int) -> None:
    if epoch < 0:
        raise PipelineError(f"there is no epoch {epoch}: epochs count from 0")
    if not 0 <= step < len(loader):
        raise PipelineError(f"there is no step {step}: an epoch has {len(loader)} steps")


def synthetic(loader: Loader) -> Iterator[Any]:
    """One resident batch, as many times as an epoch has steps."""
    batch = copied(batch_at(loader, 0, 0))
    count = sum(1 for _ in loader) if loader.recipe.scanned else len(loader)
    return (batch for _ in range(count))


def rows_of(batch: Any) -> int:
    """How many samples a batch holds.

    >>> rows_of({"x": np.zeros((4, 2)), "y": [1, 2, 3, 4]})
    4
    """
    if isinstance(batch, MicroBatches):
        return sum(map(rows_of, batch))
    if isinstance(batch, np.ndarray) or is_tensor(batch):
        return len(batch)
    if isinstance(batch, list) and not any(isinstance(item, np.ndarray) or is_tensor(item) for item in batch):
        return len(batch)
    leaves = Tree.of(batch).leaves(batch)
    sized = [leaf for leaf in leaves if hasattr(leaf, "__len__") and not isinstance(leaf, str | bytes)]
    if not sized:
        raise PipelineError(f"cannot tell how many samples a batch of type {type(batch).__name__} holds")
    return len(sized[0])


def collect(loader: Loader, fn: Callable[[Any], Any], progress: bool | None) -> Any:
    """`fn` of every batch, put together."""
    made = [copied(_given("collect", fn(batch))) for batch in _with_progress(loader, progress, "collect")]
    if not made:
        raise PipelineError("the loader gave no batch, so there is nothing to collect")
    return join_rows([_at_least_1d(part) for part in made])


def _at_least_1d(part: Any) -> Any:
    def lift(leaf: Any) -> Any:
        if is_tensor(leaf):
            return leaf.reshape(1) if leaf.ndim == 0 else leaf
        return np.atleast_1d(leaf) if isinstance(leaf, np.ndarray | np.generic | int | float) else leaf

    return tree_map(lift, part)


def average(loader: Loader, fn: Callable[[Any], Any], progress: bool | None) -> Any:
    """The mean of `fn`, weighted by the batches' sizes."""
    total: list[Any] | None = None
    tree, samples = None, 0
    for batch in _with_progress(loader, progress, "average"):
        value, rows = _given("average", fn(batch)), rows_of(batch)
        if tree is None:
            tree = Tree.of(value)
        parts = [_number(leaf) * rows for leaf in tree.leaves(value)]
        if total is not None and list(map(np.shape, parts)) != list(map(np.shape, total)):
            raise PipelineError(
                f"average: the function returned shapes {_shapes(total)} for one batch and {_shapes(parts)} for "
                "another; it must return the mean over the batch, not a value for each sample"
            )
        total = parts if total is None else [a + b for a, b in zip(total, parts, strict=True)]
        samples += rows
    if tree is None or total is None:
        raise PipelineError("the loader gave no batch, so there is no mean")
    return tree.build([part / samples for part in total])


def _given(what: str, value: Any) -> Any:
    if value is None:
        raise PipelineError(f"{what}: the function returned None; it must return what is to be put together")
    return value


def _shapes(parts: list[Any]) -> str:
    return ", ".join(str(np.shape(part)) for part in parts)


def _number(leaf: Any) -> Any:
    if is_tensor(leaf):
        array = to_array(leaf)
        leaf = leaf.item() if array is None else array
    return np.asarray(leaf, np.float64)[()]


def _with_progress(loader: Loader, progress: bool | None, what: str) -> Iterator[Any]:
    """The batches, with a bar where someone is looking."""
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        yield from loader
        return
    from rich.console import Console
    from rich.progress import track

    total = None if loader.recipe.scanned else len(loader)
    yield from track(loader, what, total=total, console=Console(file=sys.stderr))


@dataclass(frozen=True)
class Measurement:
    """How fast a loader is by itself.

    >>> Measurement(batches=10, samples=640, seconds=2.0, first=0.1, spread=0.0).samples_per_second
    320.0
    """

    batches: int
    samples: int
    seconds: float
    first: float  # seconds until the first batch of an epoch
    spread: float  # between the fastest and the slowest epoch, as a share of the median

    @property
    def samples_per_second(self) -> float:
        """The median rate."""
        return self.samples / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.samples_per_second:,.0f} samples/s (spread {self.spread:.0%}), "
            f"{self.batches / self.seconds:,.1f} batches/s, first batch after {self.first * 1e3:.1f} ms"
        )


def measure(loader: Iterable[Any], epochs: int = 3, warm_up: int = 1) -> Measurement:
    """Loop over a loader, doing nothing else, and tell its rate: the median of `epochs`, after a warm-up.

    >>> import infeed
    >>> with infeed.Loader(infeed.arrays(np.zeros((64, 8))).batch(16), workers=0) as loader:
    ...     measure(loader, epochs=2).batches
    4
    """
    rates: list[tuple[float, int, int, float]] = []
    for epoch in range(warm_up + epochs):
        began, first, batches, samples = time.perf_counter(), 0.0, 0, 0
        for batch in loader:
            first = first or time.perf_counter() - began
            batches += 1
            samples += rows_of(batch)
            del batch
        if epoch >= warm_up:
            rates.append((time.perf_counter() - began, batches, samples, first))
    if not rates or not rates[0][1]:
        raise PipelineError("the loader gave no batch, so there is nothing to measure")
    seconds = float(np.median([rate[0] for rate in rates]))
    spread = (max(rate[0] for rate in rates) - min(rate[0] for rate in rates)) / seconds
    return Measurement(rates[0][1], rates[0][2], seconds, float(np.median([rate[3] for rate in rates])), spread)


class timer:  # noqa: N801  (reads like a function: `with infeed.timer(...)`)
    """Times a block: `with infeed.timer("training") as t: ...; print(t.seconds)`.

    Prints a line at the end when it has a name.

    >>> with timer() as t:
    ...     _ = sum(range(1000))
    >>> t.seconds > 0
    True
    """

    def __init__(self, name: str = ""):
        self.name = name
        self.seconds = 0.0

    def __enter__(self) -> timer:
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        if self.name:
            print(f"{self.name}: {self.seconds:.3f} s")
