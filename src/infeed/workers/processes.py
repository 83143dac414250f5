"""Worker processes, as the loop sees them: give out tasks, take replies, replace the dead.

      the loop's process                                          other processes
    ┌──────────────────────────────┐    control socket           ┌────────┐
    │ consumer, in next()          │ ──────────────────────────► │ helper │ makes workers, tells of their end
    │   or, while it is away,      │    one socket per worker    ├────────┤
    │ the attendant thread         │ ◄─────────────────────────► │ worker │ at most two tasks in hand
    └──────────────────────────────┘                             └────────┘

Who dies:
- a worker: the helper says so; replies it had sent are still read, then its tasks are given out again and another
  takes its place. The task it had in hand is repeated one sample at a time, so that another death shows which.
- the helper: the kernel ends its workers; once all their sockets are closed, everything is started anew.
- the loop: the helper sees its socket close and ends the workers.
A slot is reused only after every task on it has answered or its worker is known to be dead.
"""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from infeed.errors import InfeedError, PipelineError, SampleKilledWorker, WorkerDied
from infeed.recipe import index_view
from infeed.slots.segments import Segment
from infeed.tasks import BadRow, Reply, Task
from infeed.wire import decode
from infeed.workers.blame import culprit, marks_rows, rows_of
from infeed.workers.channel import Channel, Gone
from infeed.workers.crew import Crew, Job
from infeed.workers.launch import HelperProcess, StartMethod, start_helper
from infeed.workers.mailbox import Mailbox
from infeed.workers.shipping import Shipment, by_value, error_from_bytes, pack
from infeed.workers.worker import Worker, how_it_ended

IN_HAND = 2
KILLS = 3
PATIENCE = 6
FRUITLESS = 4


class ProcessCrew(Crew):
    """A number of worker processes."""

    shared = True
    group_bytes = 9 << 19  # larger than for threads, because a message costs more than a wake-up

    def __init__(self, size: int, start_method: StartMethod | None = None, setup: Any = None):
        super().__init__()
        self.size = size
        self.deaths = 0
        self._wanted = start_method
        self._method: StartMethod = start_method or "forkserver"
        self._setup = setup
        self._setup_shipment: Shipment | None = None
        self._shipments: dict[int, Shipment] = {}
        self._packed: tuple[Any, Shipment | None] = (None, None)
        self._in_helper = self._method != "spawn"
        self._helper: HelperProcess | None = None
        self._workers: dict[int, Worker] = {}
        self._by_fd: dict[int, Worker] = {}
        self._tasks: deque[Task] = deque()
        self._fruitless = 0
        self._fruitless_helpers = 0
        self._closed = False
        self._ending = False
        self._mailbox: Mailbox | None = None

    # -- jobs

    def check(self, recipe: Any) -> None:
        """Pickle a recipe now, so that what cannot be sent is told at construction; `join` will send it."""
        self._packed = (recipe, self._pack(recipe))

    def _pack(self, recipe: Any) -> Shipment | None:
        if self._method == "fork":
            return None
        try:
            if self._setup is not None and self._setup_shipment is None:
                self._setup_shipment = pack(self._setup)
            return pack(recipe)
        except PipelineError as error:
            if self._wanted is not None or self._helper is not None:
                raise
            warnings.warn(
                f"{error.__cause__ or error}: the pipeline cannot be pickled, so workers are forked from "
                "this process; that is safe as long as it runs no other threads and has not touched a GPU",
                RuntimeWarning,
                stacklevel=4,
            )
            self._method = "fork"
            return None

    def _take_packed(self, recipe: Any) -> Shipment | None:
        (known, shipment), self._packed = self._packed, (None, None)
        if known is recipe:
            return shipment
        if shipment is not None:
            shipment.close()
        return self._pack(recipe)

    def join(self, job: Job) -> None:
        """Begin to work for a job; the workers are started by the first."""
        super().join(job)
        shipment = self._take_packed(job.recipe)
        if shipment is not None:
            self._shipments[job.number] = shipment
        elif self._helper is not None and self._method == "fork":
            self._restart()  # forked workers know only what was there when they were made
        if self._helper is None:
            self._start()
        elif shipment is not None and self._in_helper:
            sizes, fds = shipment.message()
            self._helper.control.send(("job", job.number, sizes), fds)

    def leave(self, job: Job) -> None:
        """Work for it no more: wait for what is in hand, so that nobody writes into its slots later."""
        super().leave(job)
        for worker in self._workers.values():
            if job.number in worker.known:
                worker.send(("forget", job.number))
                worker.known.discard(job.number)
            worker.slots = {key for key in worker.slots if key[0] != job.number}
            worker.layouts = {key for key in worker.layouts if key[0] != job.number}
        shipment = self._shipments.pop(job.number, None)
        if shipment is not None:
            shipment.close()

    # -- starting

    def _start(self) -> None:
        recipes = {number: job.recipe for number, job in self.jobs.items()} if self._method == "fork" else {}
        self._helper = start_helper(self._method, recipes, self._setup)
        if self._mailbox is None:
            self._mailbox = Mailbox(self.lock, self._take)
        self._mailbox.register(self._helper.control.fileno())
        if self._in_helper and self._method != "fork":
            if self._setup_shipment is not None:
                sizes, fds = self._setup_shipment.message()
                self._helper.control.send(("setup", sizes), fds)
            for number, shipment in self._shipments.items():
                sizes, fds = shipment.message()
                self._helper.control.send(("job", number, sizes), fds)
        for number in range(self.size):
            self._make(number)

    def _make(self, number: int) -> None:
        """Ask the helper for a worker. Its socket can be written to before it lives."""
        assert self._helper is not None
        mine, theirs = Channel.pair()
        mine.socket.setblocking(True)
        stacks = os.memfd_create("infeed-stacks", os.MFD_CLOEXEC)
        worker = Worker(number, mine, stacks)
        self._helper.control.send(("worker", number), (theirs.fileno(), stacks))
        theirs.close()
        if self._in_helper:
            worker.known = set(self._shipments)
        elif self._setup_shipment is not None:
            sizes, fds = self._setup_shipment.message()
            worker.channel.send(("setup", sizes), fds)
        if self._method == "fork":
            worker.known = set(self.jobs)
        self._workers[number] = worker
        assert self._mailbox is not None
        self._mailbox.register(mine.fileno())
        self._by_fd[mine.fileno()] = worker

    # -- tasks

    def submit(self, task: Task) -> None:
        """Queue the task and give it out if someone is free."""
        self._tasks.append(task)
        self._assign()

    def cancel(self, job: Job) -> list[Task]:
        """Forget the job's tasks that no worker has been given."""
        mine = [task for task in self._tasks if task.job == job.number]
        self._tasks = deque(task for task in self._tasks if task.job != job.number)
        return mine

    def retire(self, job: Job, slots: list[int]) -> None:
        """Have the workers unmap slots."""
        for worker in self._workers.values():
            mapped = [slot for slot in slots if (job.number, slot) in worker.slots]
            if mapped:
                worker.slots -= {(job.number, slot) for slot in mapped}
                worker.send(("unslot", job.number, mapped))

    def _assign(self) -> None:
        """Give queued tasks to the workers with the least in hand, two each at most."""
        skipped: list[Task] = []
        while self._tasks and not self._ending:
            task = self._tasks[0]
            if task.worker >= 0:
                worker = self._workers.get(task.worker)
            else:
                worker = min(self._workers.values(), key=lambda w: len(w.hand), default=None)
            if worker is None or len(worker.hand) >= IN_HAND:
                if task.worker < 0:
                    break
                skipped.append(self._tasks.popleft())
                continue
            self._tasks.popleft()
            self._give(worker, task)
        self._tasks.extendleft(reversed(skipped))

    def _give(self, worker: Worker, task: Task) -> None:
        job = self.jobs.get(task.job)
        if job is None:
            return
        worker.hand.append(task)
        if task.job not in worker.known:
            worker.known.add(task.job)
            sizes, fds = self._shipments[task.job].message()
            worker.send(("job", task.job, sizes), fds)
        for number in (task.slot, *(part[0] for part in task.staged if task.kind == "assemble")):
            if (task.job, number) not in worker.slots:
                worker.slots.add((task.job, number))
                segment = job.arena.slots[number].segment
                worker.send(("slot", task.job, number, segment.nbytes), (segment.fd,))
        if task.layout >= 0 and (task.job, task.layout) not in worker.layouts:
            worker.layouts.add((task.job, task.layout))
            worker.send(("layout", task.job, task.layout, by_value(job.layouts[task.layout])))
        worker.send(("task", task))

    # -- replies

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let replies come in until `ready()`."""
        if ready():
            return True
        assert self._mailbox is not None
        return self._mailbox.wait(ready, timeout)

    def _take(self, fds: list[int]) -> None:
        """Read what has come; the helper's news last, so that no reply of a dead worker is missed."""
        news = False
        for fd in fds:
            worker = self._by_fd.get(fd)
            if worker is not None:
                self._drain(worker)
            else:
                news = True
        if news:
            self._listen()
        self._assign()

    def _drain(self, worker: Worker) -> None:
        try:
            while (received := worker.channel.receive(block=False)) is not None:
                self._answered(worker, *received)
        except Gone:
            if self._workers.get(worker.number) is worker:
                self._unregister(worker)

    def _unregister(self, worker: Worker) -> None:
        self._by_fd.pop(worker.channel.fileno(), None)
        if self._mailbox is not None:
            self._mailbox.unregister(worker.channel.fileno())

    def _answered(self, worker: Worker, reply: Reply, fds: list[int]) -> None:
        task = worker.hand.popleft()
        assert task.id == reply.task, "replies come in the order of the tasks"
        self._fruitless = self._fruitless_helpers = 0
        job = self.jobs.get(task.job)
        if job is None:
            for fd in fds:
                os.close(fd)
            return
        if reply.where is not None:
            if reply.spilled:
                memory = Segment.attach(fds[0], reply.spilled).memory
            else:
                memory = job.arena.slots[task.slot].segment.memory[task.region[0] : task.region[1]]
            self._open(reply, memory)
        job.replied(task, reply)

    @staticmethod
    def _open(reply: Reply, memory: Any) -> None:
        """Exceptions are made here; batches are left for the job, which knows who may look into the slot."""
        assert reply.where is not None
        if reply.status == "failed":
            reply.value = error_from_bytes(decode(reply.where, memory))
        elif reply.status == "bad":
            reply.value = [
                BadRow(row, index, position, error_from_bytes(data))
                for row, index, position, data in decode(reply.where, memory)
            ]
        elif reply.spilled:
            reply.value = decode(reply.where, memory)

    # -- deaths

    def _listen(self) -> None:
        """The helper's news."""
        helper = self._helper
        assert helper is not None
        try:
            while helper is self._helper and (received := helper.control.receive(block=False)) is not None:
                message, _ = received
                getattr(self, "_on_" + message[0])(*message[1:])
        except Gone:
            self._helper_died()

    def _on_made(self, number: int, pid: int) -> None:
        self._workers[number].pid = pid

    def _on_broken(self, number: int, data: bytes) -> None:
        error = error_from_bytes(data)
        for job in list(self.jobs.values()) if number < 0 else [self.jobs[number]]:
            job.lost(error)

    def _on_threads(self, count: int) -> None:
        """The user's imports start threads: forking is not safe then, so let each worker load by itself."""
        self._in_helper = False
        self._restart()

    def _on_ended(self, number: int, pid: int, status: int) -> None:
        worker = self._workers.get(number)
        if worker is None or worker.pid != pid:
            return
        self._drain(worker)
        self._unregister(worker)
        worker.close()
        del self._workers[number]
        self.deaths += 1
        lost = list(worker.hand)
        cause = how_it_ended(status)
        self._fruitless += 1
        if self._fruitless > FRUITLESS * max(1, self.size) and not (lost and self._was_at_work(lost[0])):
            self._give_up(f"worker processes end again and again ({cause}) without doing any work")
            return
        self._make(number)
        self._repeat(lost, cause)

    def _repeat(self, lost: list[Task], cause: str) -> None:
        """Queue lost tasks again, before all others. The first was in hand when the worker ended."""
        if lost:
            task = lost[0]
            task.deaths += 1
            if task.careful:
                self._suspect(task, cause)
            task.careful = True
        self._tasks.extendleft(reversed([task for task in lost if task.id >= 0]))

    def _suspect(self, task: Task, cause: str) -> None:
        """Name what ended the worker, after a few deaths: the row it had marked, or the batch as a whole.

        Without a mark the task may not have begun; then the end came from outside, and is not charged to it.
        """
        job = self.jobs.get(task.job)
        if job is None:
            return
        indices, marked = self._unmark(task)
        if not len(marked) and (marks_rows(job, task) or task.unexplained < PATIENCE):
            task.unexplained += 1
            task.deaths -= 1
            return
        if len(marked) and task.deaths < KILLS:
            return
        self._fruitless = 0  # the workers did work, up to here
        count = task.deaths + task.unexplained
        deaths = f"ended {count} worker processes, the last one {cause}"
        answered, task.id = task.id, -1  # answered: not to be queued again
        again = dataclasses.replace(task, id=answered)
        if len(marked) != 1:
            error = SampleKilledWorker(
                f"a batch ({rows_of(task)}, epoch {task.epoch}) {deaths}; no sample alone does, so look at the "
                "collate and at the maps over whole batches"
            )
            job.replied(again, Reply(answered, "failed", error))
            return
        bad = culprit(job, task, int(marked[0]), int(indices[marked[0]]), deaths)
        named = task.kind == "sift" or (task.kind == "fill" and job.recipe.on_error == "replace")
        reply = Reply(answered, "bad", [bad]) if named else Reply(answered, "failed", bad.error)
        job.replied(again, reply)

    def _was_at_work(self, task: Task) -> bool:
        """Whether a careful task had begun when its worker ended: a row is marked, or its kind marks none."""
        job = self.jobs.get(task.job)
        if job is None or not task.careful:
            return False
        if not marks_rows(job, task):
            return True
        return bool((index_view(job.arena.slots[task.slot].segment.memory, task.rows) < 0).any())

    def _unmark(self, task: Task) -> tuple[Any, Any]:
        """Undo the marks of a careful task; returns the indices of its rows and which of them were marked."""
        job = self.jobs.get(task.job)
        if job is None or not task.careful or task.kind == "assemble":
            return np.empty(0, np.int64), np.empty(0, np.int64)
        low, high = (task.low, task.high) if task.kind == "fill" else (0, task.rows)
        indices = index_view(job.arena.slots[task.slot].segment.memory, task.rows)[low:high]
        marked = np.flatnonzero(indices < 0)
        indices[marked] = ~indices[marked]
        return indices, marked

    def _helper_died(self) -> None:
        """All workers go with the helper; when the last has let go of its slots, start anew."""
        self._fruitless_helpers += 1
        if self._fruitless_helpers > FRUITLESS:
            self._give_up("the helper process ends again and again")
        else:
            self._restart()

    def _restart(self) -> None:
        lost = self._end_all()
        self._start()
        for task in lost:
            self._unmark(task)
        self._tasks.extendleft(reversed(lost))
        self._assign()

    def _end_all(self) -> list[Task]:
        """End helper and workers for certain, read what they still said; returns the unanswered tasks."""
        lost: list[Task] = []
        self._ending = True
        helper, self._helper = self._helper, None
        if helper is not None:
            if self._mailbox is not None:
                self._mailbox.unregister(helper.control.fileno())
            while True:
                try:
                    received = helper.control.receive(block=False)
                except Gone:
                    break
                if received is None:
                    break
                if received[0][0] == "made":
                    self._on_made(*received[0][1:])
            for worker in self._workers.values():
                worker.channel.finish()
            helper.end()
        for worker in self._workers.values():
            worker.until_gone()
            self._drain(worker)
            self._unregister(worker)
            lost.extend(worker.hand)
            worker.close()
        self._workers.clear()
        self._ending = False
        return sorted(lost, key=lambda task: task.id)

    def _give_up(self, what: str) -> None:
        error: InfeedError = WorkerDied(f"{what}; see what they printed, or try mode='inline'")
        for job in list(self.jobs.values()):
            job.lost(error)

    # -- looking in, ending

    def stacks(self) -> str:
        """The Python stack of every worker."""
        deadline = time.monotonic() + 1.0
        workers = list(self._workers.values())
        for worker in workers:
            worker.ask_for_stack()
        return "\n".join(worker.stack(deadline) for worker in workers)

    def pids(self) -> list[int]:
        """Process ids of the workers that live."""
        return [worker.pid for worker in self._workers.values() if worker.pid]

    @property
    def helper_pid(self) -> int:
        """Process id of the helper; 0 if there is none."""
        return self._helper.pid if self._helper else 0

    def close(self) -> None:
        """End all processes. Nothing of theirs is left behind."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._tasks.clear()
            self.dismiss()
            self._end_all()
            for shipment in (*self._shipments.values(), self._setup_shipment, self._packed[1]):
                if shipment is not None:
                    shipment.close()
            self._shipments.clear()
        if self._mailbox is not None:
            self._mailbox.close()
