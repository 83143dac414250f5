"""How one turn of a loader is timed. The loop does nothing with a batch but hold it until the next one comes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from benchmarks.data import TRAIN_SECONDS, ids


class Feed(Protocol):
    """A loader that takes part: it gives epochs of `steps` batches."""

    steps: int

    @property
    def note(self) -> str: ...
    def epoch(self) -> Iterator[Any]: ...
    def jump(self) -> None: ...
    def close(self) -> None: ...


class Entrant(Protocol):
    """A contestant in its own process: warmed up once, then one `turn` in every round."""

    @property
    def note(self) -> str: ...
    def warm_up(self) -> None: ...
    def turn(self) -> float: ...
    def close(self) -> None: ...


Timing = Callable[[Feed], float]


class Loading:
    """An entrant that is a loader, timed in the way of its work."""

    def __init__(self, feed: Feed, samples: int, timing: Timing):
        self.feed, self.samples, self.timing = feed, samples, timing

    @property
    def note(self) -> str:
        """What the loader says of itself."""
        return self.feed.note

    def warm_up(self) -> None:
        """One epoch, in which every sample must come exactly once."""
        seen = np.sort(np.concatenate([ids(batch) for batch in self.feed.epoch()]))
        if not np.array_equal(seen, np.arange(self.samples)):
            raise RuntimeError(f"gave {len(seen)} samples instead of each of the {self.samples} once")

    def turn(self) -> float:
        """One turn."""
        return self.timing(self.feed)

    def close(self) -> None:
        """End the loader."""
        self.feed.close()


class ColdStart:
    """An entrant that makes its loader anew in every turn: seconds from nothing to the first batch."""

    def __init__(self, make: Callable[[], Feed]):
        self.make = make
        self.note = ""

    def warm_up(self) -> None:
        """Once, for what is imported or compiled at first use."""
        self.turn()

    def turn(self) -> float:
        """Make the loader, get one batch, stop the clock, end the loader."""
        began = time.perf_counter()
        feed = self.make()
        batches = feed.epoch()
        batch = next(batches)
        seconds = time.perf_counter() - began
        del batch, batches
        self.note = feed.note
        feed.close()
        return seconds

    def close(self) -> None:
        """Nothing is kept."""


def rate(samples: int, seconds: float) -> Timing:
    """Samples per second.

    The clock runs from the middle of one epoch to the middle of a later one: whole epochs with all their
    seams, and what was prepared before it starts is as much as what lies ready when it stops.
    """

    def timing(feed: Feed) -> float:
        middle, epochs, began = feed.steps // 2, -1, 0.0
        while True:
            for step, _batch in enumerate(feed.epoch()):
                if step == middle:
                    now = time.perf_counter()
                    epochs += 1
                    if not epochs:
                        began = now
                    elif now - began >= seconds:
                        return epochs * samples / (now - began)

    return timing


def total(epochs: int) -> Timing:
    """Seconds for some epochs with 10 ms of training after each batch."""

    def timing(feed: Feed) -> float:
        began = time.perf_counter()
        for _ in range(epochs):
            for _batch in feed.epoch():
                time.sleep(TRAIN_SECONDS)
        return time.perf_counter() - began

    return timing


def first_batch(feed: Feed) -> float:
    """Seconds to the first batch of an epoch, workers alive, nothing prepared."""
    feed.jump()
    began = time.perf_counter()
    batches = feed.epoch()
    _batch = next(batches)
    return time.perf_counter() - began


def epoch_start(feed: Feed) -> float:
    """Seconds from the end of one epoch to the first batch of the next; the median of five."""
    starts = []
    for _ in range(6):
        began = time.perf_counter()
        for step, _batch in enumerate(feed.epoch()):
            if not step:
                starts.append(time.perf_counter() - began)
    return statistics.median(starts[1:])
