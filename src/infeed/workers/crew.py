"""The protocol between a loader and those who work for it.

A crew takes tasks from any number of jobs (one job is one loader) and brings each task's reply to its job.
All methods but `close` are called with `lock` held, and replies are brought with `lock` held, so that a job
needs no lock of its own. Every task submitted is answered exactly once, unless it is cancelled before anyone
began it: a worker that dies is the crew's own affair.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from infeed.errors import WorkerDied
from infeed.layout import Layout
from infeed.recipe import Recipe
from infeed.slots import Arena
from infeed.tasks import Reply, Task


class Job(Protocol):
    """What a crew must know of a loader."""

    number: int
    recipe: Recipe
    arena: Arena
    layouts: dict[int, Layout]

    def replied(self, task: Task, reply: Reply) -> None:
        """Called once for each task, with the crew's lock held."""

    def lost(self, error: BaseException) -> None:
        """Called when the crew can do no more work for this job; `error` says why."""

    def memory(self, task: Task) -> Any:
        """The slot of a task, for workers that share our memory; called with the crew's lock held."""

    def staged(self, task: Task) -> tuple[Any, ...]:
        """The staged samples an assemble task is about, for workers that share our memory."""


class Crew(ABC):
    """Some workers. `size` is how many; `shared` whether they need memory that other processes can map."""

    size: int
    shared: bool = False
    group_bytes: int = 5 << 19  # slots for several small steps are about this large: they should stay in the cache
    lock: threading.RLock

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.jobs: dict[int, Job] = {}

    def join(self, job: Job) -> None:
        """Begin to work for a job."""
        self.jobs[job.number] = job

    def leave(self, job: Job) -> None:
        """Work for it no more. Its tasks in hand are finished and their replies dropped."""
        self.cancel(job)
        self.jobs.pop(job.number, None)

    def dismiss(self) -> None:
        """Tell all jobs that there will be no more work done; for `close`."""
        for job in list(self.jobs.values()):
            job.lost(WorkerDied("the workers were closed while a loader still needed them"))
        self.jobs.clear()

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Take a task; tasks are begun in the order they were submitted."""

    @abstractmethod
    def cancel(self, job: Job) -> list[Task]:
        """Forget the job's tasks that nobody has begun, and return them."""

    @abstractmethod
    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let replies come in until `ready()`; False if `timeout` seconds passed before."""

    @abstractmethod
    def close(self) -> None:
        """End all workers. May be called twice."""

    def retire(self, job: Job, slots: list[int]) -> None:  # noqa: B027  (most crews need do nothing)
        """These slots are no longer used."""

    def stacks(self) -> str:
        """What every worker is doing right now, as Python stacks."""
        return ""

    def pids(self) -> list[int]:
        """The process ids of the workers, where they are processes."""
        return []
