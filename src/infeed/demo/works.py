"""The three kinds of loading that the demo compares."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import infeed
from infeed import Pipeline, Plan

IMAGE = (1, 128, 128)
MICRO_BATCH = 16
ITERATIONS = 50
TRAINING = 0.010
SEED = 7


@dataclass(frozen=True)
class Work:
    """A pipeline, what to call it, and how long the loop trains on each of its batches.

    `holds_lock` says that loading holds the interpreter lock, so that threads cannot share it out.
    """

    key: str
    title: str
    short: str
    pipeline: Pipeline
    training: float = TRAINING
    holds_lock: bool = False

    @property
    def limit(self) -> float:
        """Samples per second of a loop that never waits.

        >>> toy().limit
        1600.0
        """
        return self.pipeline.plan.rows_per_step / self.training


def image_count(wanted: int, free: int) -> int:
    """How many images fit into a quarter of the free memory.

    >>> image_count(10_000, free=8 << 30), image_count(10_000, free=1 << 30)
    (10000, 4096)
    """
    return max(MICRO_BATCH, min(wanted, free // 4 // (4 * IMAGE[1] * IMAGE[2])))


def images(count: int, *, shared: bool = True) -> Work:
    """The tutorial's dataset, in memory that worker processes map instead of copying it.

    A step takes 50 iterations of 16 images, fewer where there are so few images that an epoch would have
    less than a dozen steps.

    >>> images(320, shared=False).title
    '320 images of 1x128x128 float32 in memory, steps of 16'
    """
    pixels: NDArray[np.float32] = np.empty((count, *IMAGE), np.float32)
    if shared:
        pixels = infeed.share(pixels)
    rng = np.random.default_rng(SEED)
    for start in range(0, count, 500):
        rng.random(out=pixels[start : start + 500], dtype=np.float32)
    labels = rng.integers(0, 10, count)
    iterations = max(1, min(ITERATIONS, count // (12 * MICRO_BATCH)))
    plan = Plan(MICRO_BATCH, iterations=iterations)
    return Work(
        "images",
        f"{count:,} images of 1x128x128 float32 in memory, steps of {plan.samples_per_step}",
        "Images in memory",
        infeed.arrays(image=pixels, label=labels).shuffle(seed=SEED).batch(plan),
    )


class SlowItems:
    """A dataset that takes `turns` turns of pure Python for every sample.

    >>> SlowItems(10, turns=100)[3]["label"]
    3
    """

    def __init__(self, count: int, turns: int):
        self.count = count
        self.turns = turns

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        value = spin(index, self.turns)
        return {"x": np.full(32, value / (1 << 31), np.float32), "label": index % 10}


def spin(value: int, turns: int) -> int:
    """So many turns of a generator of poor random numbers, which no interpreter can skip.

    >>> spin(1, 2)
    377401575
    """
    for _ in range(turns):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


def turns_for(seconds: float) -> int:
    """How many turns take that long here: from the fastest of some runs, so that a busy machine counts less.

    >>> turns_for(0.0001) > 0
    True
    """
    trial = 20_000
    fastest = float("inf")
    for _ in range(25):
        began = time.perf_counter()
        spin(1, trial)
        fastest = min(fastest, time.perf_counter() - began)
    return max(1, round(seconds / fastest * trial))


def jitter(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """An augmentation: a little noise.

    >>> jitter({"x": np.zeros(2, np.float32)}, np.random.default_rng(0))["x"].dtype
    dtype('float32')
    """
    noise = rng.standard_normal(sample["x"].shape, np.float32)
    return {**sample, "x": sample["x"] + noise}


def slow_items(count: int = 1024, seconds: float = 0.001, batch: int = 16) -> Work:
    """Samples that take a millisecond of pure Python each, then noise from the sample's own generator.

    >>> slow_items(seconds=1e-6).holds_lock
    True
    """
    dataset = SlowItems(count, turns_for(seconds))
    return Work(
        "python",
        f"1 ms of pure Python for each sample, batches of {batch}",
        "1 ms of Python a sample",
        infeed.source(dataset).shuffle(seed=SEED).map(jitter).batch(batch),
        holds_lock=True,
    )


def doze(batch: Any) -> Any:
    """Five milliseconds in which a disk or a network would be at work.

    >>> doze("batch")
    'batch'
    """
    time.sleep(0.005)
    return batch


def toy() -> Work:
    """Ten batches an epoch, 5 ms to load each and 10 ms to train on it.

    >>> len(toy().pipeline)
    10
    """
    features = np.arange(160 * 8, dtype=np.float32).reshape(160, 8)
    return Work(
        "toy",
        "5 ms of waiting for each batch of 16",
        "5 ms of waiting a batch",
        infeed.arrays(features=features).shuffle(seed=SEED).batch(16).map_batch(doze),
    )
