"""No workers at all: the training loop does the tasks itself, when it asks for a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from infeed.errors import WorkerDied
from infeed.runner import Runner
from infeed.tasks import Task
from infeed.workers.crew import Crew, Job


class InlineCrew(Crew):
    """Does a task only when someone waits for it.

    >>> InlineCrew().size
    0
    """

    size = 0
    group_bytes = 9 << 18  # nothing is handed over, so only the cache counts

    def __init__(self) -> None:
        super().__init__()
        self._tasks: deque[Task] = deque()
        self._runners: dict[int, Runner] = {}

    def join(self, job: Job) -> None:
        """Begin to work for a job."""
        super().join(job)
        self._runners[job.number] = Runner(job.recipe, "inline")

    def leave(self, job: Job) -> None:
        """Work for it no more."""
        super().leave(job)
        self._runners.pop(job.number, None)

    def submit(self, task: Task) -> None:
        """Keep the task until someone waits."""
        self._tasks.append(task)

    def cancel(self, job: Job) -> list[Task]:
        """Forget the job's tasks."""
        mine = [task for task in self._tasks if task.job == job.number]
        self._tasks = deque(task for task in self._tasks if task.job != job.number)
        return mine

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Do tasks until `ready()`. There is nobody to time out on but ourselves."""
        while not ready():
            if not self._tasks:
                raise WorkerDied("there is nothing to do, and nothing ready: the loader was closed meanwhile")
            task = self._tasks.popleft()
            job, runner = self.jobs[task.job], self._runners[task.job]
            runner.layouts = job.layouts
            job.replied(task, runner.run(task, job.memory(task), job.staged(task)))
        return True

    def close(self) -> None:
        """Nothing to end."""
        self.dismiss()
        self._tasks.clear()
