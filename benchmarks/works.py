"""The works: what is loaded, who takes part, and the ratios that are wanted on two cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import infeed
from benchmarks import data
from benchmarks.data import Sizes
from benchmarks.limits import BareProcesses, TakeOnce, TakeRate, TrainingAlone
from benchmarks.ours import InfeedFeed
from benchmarks.peers import BatchUpFeed, LoopFeed, MakeBatch, TorchFeed, torch_graphs
from benchmarks.rounds import Contestant
from benchmarks.turns import ColdStart, Feed, Loading, Timing, epoch_start, first_batch, rate, total

WORKERS = 2
OURS = "infeed, 2 processes"
AUTO = "infeed, auto"
TORCH = "torch, 2 workers"
ONE_THREAD = "np.take, 1 thread"
TWO_THREADS = "np.take, 2 threads"
TWO_CORES = "the work alone, 2 cores"
TRAINING = "the training alone"


@dataclass(frozen=True)
class Wanted:
    """The ratios wanted: two processes against torch's two, auto against the best other, and the limit."""

    torch: float | None = None
    best: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Work:
    """One row of the comparison. `unit` is `samples/s`, where more is better, or `s`, where less is."""

    name: str
    title: str
    unit: str
    wanted: Wanted
    contestants: Callable[[Sizes, bool], list[Contestant]]
    limit: str | None = None


@dataclass(frozen=True)
class Job:
    """What all loaders of a work have to do: the dataset, the batch, and the forms each of them takes it in."""

    pipeline: Any
    dataset: Any
    batch: int
    make: MakeBatch
    timing: Timing
    collate: Any = None
    batchup: tuple[str, ...] = ()
    torch: tuple[int, ...] = (WORKERS,)
    whole: bool = False
    nbytes: int = 1

    def contestants(self, all_modes: bool) -> list[Contestant]:
        """Everyone but the limits."""
        return [*self._infeed(all_modes), *self._torch(), *self._batchup(), *self._loop()]

    def _infeed(self, all_modes: bool) -> list[Contestant]:
        settings: dict[str, dict[str, Any]] = {OURS: {"workers": WORKERS, "mode": "processes"}, AUTO: {}}
        if all_modes:
            settings["infeed, 2 threads"] = {"workers": WORKERS, "mode": "threads"}
            settings["infeed, inline"] = {"workers": 0}
        return [
            self._entered(name, "infeed", partial(InfeedFeed, self.pipeline, **chosen))
            for name, chosen in settings.items()
        ]

    def _torch(self) -> list[Contestant]:
        entered = []
        for workers in self.torch:
            name = f"torch, {workers} workers" if workers else "torch, inline"
            feed = partial(TorchFeed, self.dataset, self.batch, workers, self.collate)
            entered.append(self._entered(name, "torch", feed))
        if self.whole:
            feed = partial(TorchFeed, self.dataset, self.batch, 0, whole=True)
            entered.append(self._entered("torch, inline, whole batches", "torch", feed))
        return entered

    def _batchup(self) -> list[Contestant]:
        plain = self.make is data.gather
        given, make = (self.dataset.x, None) if plain else (self.dataset, self.make)
        return [
            self._entered(
                "BatchUp, inline" if pool == "inline" else f"BatchUp, {WORKERS} {pool}",
                "BatchUp",
                partial(BatchUpFeed, given, self.batch, make, pool, WORKERS, self.nbytes),
            )
            for pool in self.batchup
        ]

    def _loop(self) -> list[Contestant]:
        feed = partial(LoopFeed, self.dataset, self.batch, self.make)
        return [self._entered("plain loop", "loop", feed)]

    def _entered(self, name: str, family: str, feed: Callable[[], Feed]) -> Contestant:
        return Contestant(name, family, lambda: Loading(feed(), len(self.dataset), self.timing))


def _take_limits(x: data.Array, batch: int, seconds: float) -> list[Contestant]:
    return [
        Contestant(name, "limit", partial(TakeRate, x, batch, threads, seconds))
        for name, threads in ((ONE_THREAD, 1), (TWO_THREADS, 2))
    ]


def _rows(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    x, batch = data.numbered(sizes.rows, 128), 256
    job = Job(
        infeed.arrays(x).shuffle(seed=0).batch(batch),
        data.Items(x),
        batch,
        data.gather,
        rate(sizes.rows, sizes.seconds),
        batchup=("inline", "threads"),
        torch=(WORKERS, 0),
        whole=True,
        nbytes=x[:batch].nbytes,
    )
    return job.contestants(all_modes) + _take_limits(x, batch, sizes.seconds)


def _items(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    x, batch = data.numbered(sizes.rows, 128), 256
    job = Job(
        infeed.source(data.Items(x)).shuffle(seed=0).batch(batch),
        data.Items(x),
        batch,
        data.stack_items,
        rate(sizes.rows, sizes.seconds),
        batchup=("inline", "threads", "processes"),
        torch=(WORKERS, 0),
        nbytes=x[:batch].nbytes,
    )
    return job.contestants(all_modes)


def _images(plan: int | infeed.Plan, sizes: Sizes, all_modes: bool) -> list[Contestant]:
    x = data.numbered(sizes.images, 1, 128, 128)
    batch = plan if isinstance(plan, int) else plan.samples_per_step
    job = Job(
        infeed.arrays(x).shuffle(seed=0).batch(plan),
        data.Items(x),
        batch,
        data.gather,
        rate(sizes.images, sizes.seconds),
        batchup=("inline", "threads"),
        torch=(WORKERS, 0),
        whole=True,
        nbytes=x[:batch].nbytes,
    )
    return job.contestants(all_modes) + _take_limits(x, batch, sizes.seconds)


def _images_in_steps(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    return _images(infeed.Plan(16, iterations=sizes.step // 16), sizes, all_modes)


def _graphs(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    graphs, batch = data.Graphs(sizes.graphs), 64
    concat = infeed.Concat(shift={"edge_index": "x"}, axis={"edge_index": 1})
    job = Job(
        infeed.source(graphs).shuffle(seed=0).batch(batch, collate=concat),
        graphs,
        batch,
        data.concat_items,
        rate(sizes.graphs, sizes.seconds),
        collate=torch_graphs,
        batchup=("inline", "threads", "processes"),
        torch=(WORKERS, 0),
        nbytes=1 << 20,
    )
    return job.contestants(all_modes)


def _busy(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    busy, batch = data.Busy(data.numbered(sizes.busy, 16), data.turns_for(sizes.busy_seconds)), 64
    job = Job(
        infeed.source(busy).shuffle(seed=0).batch(batch),
        busy,
        batch,
        data.stack_items,
        rate(sizes.busy, sizes.seconds),
        batchup=("processes",),
    )
    alone = Contestant(TWO_CORES, "limit", partial(BareProcesses, busy, WORKERS))
    return [*job.contestants(all_modes), alone]


def _waiting(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    steps, batch = 10, 16
    waiting = data.Waiting(data.numbered(steps * batch, 16))
    job = Job(
        infeed.source(waiting).shuffle(seed=0).batch(batch),
        waiting,
        batch,
        data.stack_items,
        total(sizes.wait_epochs),
        batchup=("threads", "processes"),
    )
    alone = Contestant(TRAINING, "limit", partial(TrainingAlone, steps * sizes.wait_epochs))
    return [*job.contestants(all_modes), alone]


def _first_batch(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    x = data.numbered(sizes.images, 1, 128, 128)
    plan = infeed.Plan(16, iterations=sizes.large_step // 16)
    job = Job(
        infeed.arrays(x).shuffle(seed=0).batch(plan),
        data.Items(x),
        sizes.large_step,
        data.gather,
        first_batch,
        batchup=("threads",),
        nbytes=x[: sizes.large_step].nbytes,
    )
    take = Contestant(TWO_THREADS, "limit", partial(TakeOnce, x, sizes.large_step, 2))
    return [*job.contestants(all_modes), take]


def _first_batch_cold(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    x = data.numbered(sizes.images, 1, 128, 128)
    pipeline = infeed.arrays(x).shuffle(seed=0).batch(infeed.Plan(16, iterations=sizes.large_step // 16))
    feeds: dict[tuple[str, str], Callable[[], Feed]] = {
        (OURS, "infeed"): lambda: InfeedFeed(pipeline, workers=WORKERS, mode="processes"),
        (AUTO, "infeed"): lambda: InfeedFeed(pipeline),
        (TORCH, "torch"): lambda: TorchFeed(data.Items(x), sizes.large_step, WORKERS),
        ("plain loop", "loop"): lambda: LoopFeed(data.Items(x), sizes.large_step, data.gather),
    }
    return [Contestant(name, family, partial(ColdStart, feed)) for (name, family), feed in feeds.items()]


def _epoch_start(sizes: Sizes, all_modes: bool) -> list[Contestant]:
    x = data.numbered(sizes.few_images, 1, 128, 128)
    job = Job(
        infeed.arrays(x).shuffle(seed=0).batch(16),
        data.Items(x),
        16,
        data.gather,
        epoch_start,
        batchup=("threads",),
        nbytes=x[:16].nbytes,
    )
    return job.contestants(all_modes)


RATE, SECONDS = "samples/s", "s"

WORKS = (
    Work("rows", "rows of 128 float32, batch 256", RATE, Wanted(45, 1.4, 0.6), _rows, TWO_THREADS),
    Work("items", "the same, per-item __getitem__", RATE, Wanted(10, 4), _items),
    Work("images", "1x128x128 float32, batch 16", RATE, Wanted(15, 1.2, 0.65), partial(_images, 16), TWO_THREADS),
    Work("steps", "the same, step of 800", RATE, Wanted(5, 1.35, 0.9), _images_in_steps, TWO_THREADS),
    Work("graphs", "ragged graphs, concat, batch 64", RATE, Wanted(8, 1.0), _graphs),
    Work("busy", "1 ms of pure Python per sample", RATE, Wanted(1.3, 1.0, 0.95), _busy, TWO_CORES),
    Work("waiting", "5 ms waiting, 10 ms training", SECONDS, Wanted(None, 1.0, 1 / 1.03), _waiting, TRAINING),
    Work("first", "first batch of a step of 3,200", SECONDS, Wanted(8), _first_batch, TWO_THREADS),
    Work("cold", "the same, workers not yet started", SECONDS, Wanted(), _first_batch_cold),
    Work("epoch", "start of an epoch, workers alive", SECONDS, Wanted(10), _epoch_start),
)
