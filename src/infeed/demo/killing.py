"""A worker killed in the middle of an epoch, and the stream compared with the undisturbed one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from infeed import Loader, Pipeline, Workers
from infeed.demo.measuring import bits


@dataclass
class Killing:
    """What has come of it so far.

    >>> Killing(batches=10, received=10, identical=10, deaths=1, pid=4711, after=5).sound
    True
    """

    batches: int = 0
    received: int = 0
    identical: int = 0
    deaths: int = 0
    pid: int = 0
    after: int = 0
    done: bool = False

    @property
    def sound(self) -> bool:
        """A worker did die, and not one bit of the stream tells of it."""
        return self.deaths > 0 and self.batches == self.received == self.identical


def kill(killing: Killing, pipeline: Pipeline, workers: int, redraw: Callable[[], None]) -> None:
    """Run an epoch inline, then the same epoch in processes, one of which gets SIGKILL halfway."""
    killing.batches = len(pipeline)
    redraw()
    with Loader(pipeline, workers=0) as loader:
        undisturbed = [bits(batch) for batch in loader]
    with Workers(workers, mode="processes") as crew, Loader(pipeline, workers=crew) as loader:
        for step, batch in enumerate(loader):
            killing.received += 1
            killing.identical += step < len(undisturbed) and bits(batch) == undisturbed[step]
            if killing.received == killing.batches // 2:
                killing.pid, killing.after = crew.crew().pids()[0], killing.received
                os.kill(killing.pid, signal.SIGKILL)
            redraw()
        killing.deaths = loader.stats().worker_deaths
    killing.done = True
    redraw()
