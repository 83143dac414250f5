"""What a loader has done so far: batches, waiting, work, memory."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Waiting:
    """How often and how long the loop had to wait."""

    batches: int = 0
    waits: int = 0
    seconds: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    def add(self, seconds: float) -> None:
        """One wait more."""
        self.waits += 1
        self.seconds += seconds


@dataclass(frozen=True)
class Statistics:
    """A snapshot; `as_dict()` gives it to a logger.

    Of the loop: `batches` received, `seconds` since the loader was made, in how many `waits` and for how many
    seconds (`waited`) it had to wait. Of the workers: `samples` made and `worker_seconds` spent on them, with
    those prepared ahead; `ready` batches lie prepared now; `worker_deaths` were made good. Of the memory:
    `slots` of `slot_bytes` in all, and batches `copied_out` because they were full.

    >>> import numpy as np, infeed
    >>> with infeed.Loader(infeed.arrays(np.arange(8)).batch(4), workers=0) as loader:
    ...     _ = list(loader)
    ...     loader.stats().batches
    2
    """

    batches: int
    seconds: float
    waited: float
    waits: int
    ready: int
    samples: int
    worker_seconds: float
    worker_deaths: int
    slots: int
    slot_bytes: int
    copied_out: int
    workers: str

    @property
    def waiting_share(self) -> float:
        """The share of the time that the loop spent waiting for data."""
        return self.waited / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        rate = self.samples / self.seconds if self.seconds else 0.0
        return (
            f"{self.batches:,} batches in {self.seconds:.1f} s by {self.workers}: the loop waited "
            f"{self.waiting_share:.0%} of the time ({self.waits:,} waits), {rate:,.0f} samples/s were made, "
            f"{self.ready} batches are ready; {self.slots} slots of {self.slot_bytes / 1e6:,.1f} MB in all, "
            f"{self.worker_deaths} dead workers, {self.copied_out} batches copied out"
        )

    @staticmethod
    def of(waiting: Waiting, stream: Any, workers: Any) -> Statistics:
        """A snapshot of a loader's counters."""
        counters = stream.counters if stream is not None else None
        return Statistics(
            batches=waiting.batches,
            seconds=time.perf_counter() - waiting.began,
            waited=waiting.seconds,
            waits=waiting.waits,
            ready=stream.ready_steps if stream is not None else 0,
            samples=counters.rows if counters else 0,
            worker_seconds=counters.seconds if counters else 0.0,
            worker_deaths=getattr(stream.crew, "deaths", 0) if stream is not None else 0,
            slots=len(stream.arena.slots) if stream is not None else 0,
            slot_bytes=stream.arena.nbytes if stream is not None else 0,
            copied_out=stream.copied if stream is not None else 0,
            workers=repr(workers) if workers is not None else "not chosen yet",
        )

    def as_dict(self) -> dict[str, Any]:
        """All numbers by name, with the waiting share."""
        return {**asdict(self), "waiting_share": self.waiting_share}
