"""Worker threads: for work that releases the interpreter lock, such as our own gathers and most decoders.

the loop                       worker threads
submit -> [ queue of tasks ] -> run(task)
wait   <- condition           <- replied(task) under the lock
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from infeed.runner import Runner
from infeed.tasks import Reply, Task
from infeed.workers.crew import Crew, Job

Setup = Callable[[int], Any]


class ThreadCrew(Crew):
    """A number of threads of this process.

    >>> crew = ThreadCrew(2)
    >>> crew.size
    2
    >>> crew.close()
    """

    def __init__(self, size: int, setup: Setup | None = None):
        super().__init__()
        self.size = size
        self._setup = setup
        self._condition = threading.Condition(self.lock)
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._pending: dict[int, Task] = {}
        self._readers: dict[int, dict[str, Any]] = {}
        self._helping: dict[int, Runner] = {}
        self._waiting = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"infeed-{worker}", daemon=True)
            for worker in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def join(self, job: Job) -> None:
        """Begin to work for a job."""
        super().join(job)
        self._readers[job.number] = {}

    def leave(self, job: Job) -> None:
        """Work for it no more."""
        super().leave(job)
        self._readers.pop(job.number, None)
        self._helping.pop(job.number, None)

    def submit(self, task: Task) -> None:
        """Queue the task."""
        self._pending[task.id] = task
        self._queue.put(task)

    def cancel(self, job: Job) -> list[Task]:
        """Forget the job's tasks that no thread has begun."""
        mine = [task for task in self._pending.values() if task.job == job.number]
        for task in mine:
            del self._pending[task.id]
        return mine

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep until `ready()`; before that, lend a hand with gathers, which costs less than a wake-up."""
        while not ready():
            if not self._lend_a_hand():
                break
        if ready():
            return True
        self._waiting += 1
        try:
            return self._condition.wait_for(ready, timeout)
        finally:
            self._waiting -= 1

    def _lend_a_hand(self) -> bool:
        """Do one task that is a mere gather in the waiting thread itself, if there is one."""
        if self._setup is not None:
            return False  # which this thread has not been through
        for task in self._pending.values():
            job = self.jobs[task.job]
            if task.kind == "fill" and job.recipe.gathers and not job.recipe.whole_batches:
                break
        else:
            return False
        del self._pending[task.id]
        runner = self._helping.get(task.job)
        if runner is None:
            runner = self._helping[task.job] = Runner(job.recipe, "thread", -1)
        memory = job.memory(task)
        self.lock.release()
        try:
            reply = self._run(runner, job, task, memory)
        finally:
            self.lock.acquire()
        if task.job in self.jobs:
            job.replied(task, reply)
        return True

    def _work(self, worker: int) -> None:
        runners: dict[int, Runner] = {}
        failure: BaseException | None = None
        if self._setup is not None:
            try:
                self._setup(worker)
            except Exception as error:
                error.add_note(f"(in worker_setup of thread {worker})")
                failure = error
        while (task := self._queue.get()) is not None:
            with self.lock:
                job = self.jobs.get(task.job)
                if self._pending.pop(task.id, None) is None or job is None:
                    continue
                readers, memory = self._readers[task.job], job.memory(task)
            runner = runners.get(task.job)
            if runner is None:
                runners = {number: made for number, made in runners.items() if number in self.jobs}
                runner = runners[task.job] = Runner(job.recipe, "thread", worker, readers)
            failed = Reply(task.id, "failed", failure)
            reply = failed if failure is not None else self._run(runner, job, task, memory)
            del memory
            with self.lock:
                if task.job in self.jobs:
                    job.replied(task, reply)
                if self._waiting:
                    self._condition.notify_all()
            del task, reply, job  # an idle thread must keep no batch alive

    @staticmethod
    def _run(runner: Runner, job: Job, task: Task, memory: Any) -> Reply:
        runner.layouts = job.layouts
        return runner.run(task, memory, job.staged(task))

    def stacks(self) -> str:
        """The Python stack of every worker thread."""
        frames = sys._current_frames()
        return "\n".join(
            f"{thread.name}:\n" + "".join(traceback.format_stack(frames[thread.ident]))
            for thread in self._threads
            if thread.ident in frames
        )

    def close(self) -> None:
        """Let the threads end; one that is stuck in the user's code is a daemon and ends with the program."""
        if self._closed:
            return
        self._closed = True
        with self.lock:
            self.dismiss()
            self._condition.notify_all()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=0.5)
