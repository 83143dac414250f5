"""One loop that trains and waits, timed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infeed import Loader
from infeed.demo.works import Work
from infeed.trees import Tree

Mode = Literal["inline", "threads", "processes"]
TOUCHED = 10  # more batches than there are slots


@dataclass
class Run:
    """One work in one mode: what has been measured so far.

    >>> run = Run("threads", 2, samples=160, trained=0.75, waited=0.25)
    >>> run.name, run.rate, run.waiting_share
    ('2 threads', 160.0, 0.25)
    """

    mode: Mode
    workers: int
    samples: int = 0
    batches: int = 0
    trained: float = 0.0
    waited: float = 0.0
    first: float = 0.0
    digest: str = ""
    status: Literal["to come", "starting", "running", "done"] = "to come"

    @property
    def name(self) -> str:
        """As people say it."""
        unit = self.mode[:-2] if self.mode == "processes" else self.mode[:-1]
        return "inline" if not self.workers else f"{self.workers} {unit if self.workers == 1 else self.mode}"

    @property
    def seconds(self) -> float:
        """How long the loop has run."""
        return self.trained + self.waited

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """The share of its time in which the loop did not train.

        It was in `next()`, where inline the loading itself is done, or it wanted the interpreter back from
        threads that load.
        """
        return self.waited / self.seconds if self.seconds else 0.0


def measure(run: Run, work: Work, seconds: float, warm_up: float, redraw: Callable[[], None]) -> None:
    """Train for `seconds` on an endless stream, after a warm-up that is not counted.

    The clock starts when the loader has run for a while: then the memory of every slot has been touched,
    which is slow the first time, and batches prepared in advance do not pass for speed. `redraw` is called
    in the time that belongs to training.
    """
    run.status = "starting"
    redraw()
    began = time.perf_counter()
    with Loader(work.pipeline, workers=run.workers, mode=run.mode, epochs=None) as loader:
        batches = iter(loader)
        batch = next(batches)
        run.first = time.perf_counter() - began
        run.digest = hashlib.blake2b(bits(batch), digest_size=16).hexdigest()
        del batch
        _train(Run(run.mode, run.workers), batches, work.training, warm_up, TOUCHED, redraw)
        run.status = "running"
        _train(run, batches, work.training, seconds, 1, redraw)
    run.status = "done"
    redraw()


def _train(
    run: Run, batches: Iterator[Any], training: float, seconds: float, least: int, redraw: Callable[[], None]
) -> None:
    """The loop. A training step is a time in which an accelerator is busy and this process is not."""
    asked = time.perf_counter()
    for batch in batches:
        came = time.perf_counter()
        redraw()
        time.sleep(max(0.0, training - (time.perf_counter() - came)))
        done = time.perf_counter()
        run.samples += len(Tree.of(batch).leaves(batch)[0])
        run.batches += 1
        run.trained += training
        run.waited += done - asked - training
        if run.seconds >= seconds and run.batches >= least:
            return
        asked = done


def bits(batch: Any) -> bytes:
    """Every bit of a batch, with names, dtypes and shapes.

    >>> bits(np.zeros(2)) == bits(np.zeros(2)), bits(np.zeros(2)) == bits(-np.zeros(2))
    (True, False)
    """
    tree = Tree.of(batch)
    arrays = map(np.asarray, tree.leaves(batch))
    return b"".join(
        f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes()
        for name, array in zip(tree.names, arrays, strict=True)
    )
