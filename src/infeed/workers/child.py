"""The life of one worker process: wait for a message, do it, answer; end when the loop ends.

    loop --- job, slot, layout, task ---> worker     over the worker's own socket loop <-------------------
    reply ---- worker     results lie in the slot; what does not fit comes as a new segment

Ctrl-C is the loop's affair, so a worker ignores SIGINT. It dies with the helper (PR_SET_PDEATHSIG), in the
middle of the user's code if need be, and the helper dies with the loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import pickle
import signal
import socket
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.errors import PipelineError
from infeed.runner import Runner, describe
from infeed.slots.segments import Segment
from infeed.tasks import Reply, Task
from infeed.wire import Region, decode, encode
from infeed.workers.channel import Channel, Gone
from infeed.workers.shipping import error_to_bytes, unpack

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; at once if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class Child:
    """A worker process from the inside."""

    def __init__(self, channel: Channel, worker: int, recipes: dict[int, Any], setup: Any):
        self.channel = channel
        self.worker = worker
        self.recipes = recipes
        self.runners: dict[int, Runner] = {}
        self.slots: dict[tuple[int, int], Segment] = {}
        self.broken: dict[int, BaseException] = {}
        self.setup = setup
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Serve until the other side is gone."""
        self._set_up()
        gc.collect()
        gc.freeze()
        while True:
            received = self.channel.receive()
            assert received is not None
            message, fds = received
            getattr(self, "on_" + message[0])(*message[1:], fds)

    def _set_up(self) -> None:
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)
        if self.setup is None:
            return
        try:
            self.setup(self.worker)
        except Exception as error:
            error.add_note(f"(in worker_setup of worker process {self.worker})")
            self.failure = error

    def on_job(self, number: int, sizes: Any, fds: list[int]) -> None:
        """A recipe that came after this worker was made, or that the helper left to us."""
        try:
            self.recipes[number] = unpack(sizes, fds)
        except Exception as error:
            self.broken[number] = loading_failed(error)

    def on_setup(self, sizes: Any, fds: list[int]) -> None:
        """The setup function, where the helper does not have it."""
        try:
            self.setup = unpack(sizes, fds)
        except Exception as error:
            self.failure = loading_failed(error)
            return
        self._set_up()

    def on_forget(self, number: int, _: list[int]) -> None:
        """A loader is closed."""
        self.recipes.pop(number, None)
        self.runners.pop(number, None)
        self.slots = {key: value for key, value in self.slots.items() if key[0] != number}

    def on_slot(self, number: int, slot: int, nbytes: int, fds: list[int]) -> None:
        """Map a slot; its pages are made ready now, so that the first batch is as fast as any."""
        self.slots[number, slot] = Segment.attach(fds[0], nbytes, populate=True)

    def on_unslot(self, number: int, slots: list[int], _: list[int]) -> None:
        """Unmap slots that are no longer used."""
        for slot in slots:
            self.slots.pop((number, slot), None)

    def on_layout(self, number: int, version: int, layout: bytes, _: list[int]) -> None:
        """The loader has learned the layout of its batches."""
        self._runner(number).layouts[version] = pickle.loads(layout)

    def on_task(self, task: Task, _: list[int]) -> None:
        """Do a task and answer."""
        memory = self.slots[task.job, task.slot].memory
        failure = self.failure or self.broken.get(task.job)
        if failure is not None:
            reply = Reply(task.id, "failed", failure)
        else:
            staged = self._staged(task) if task.kind == "assemble" else ()
            reply = self._runner(task.job).run(task, memory, staged)
        self._answer(task, reply, memory)

    def _runner(self, number: int) -> Runner:
        if number not in self.runners:
            self.runners[number] = Runner(self.recipes[number], "process", self.worker)
        return self.runners[number]

    def _staged(self, task: Task) -> list[Any]:
        """The staged samples an assemble task names, read from the slots they lie in."""
        found = []
        for slot, where, start, low, high in task.staged:
            memory = self.slots[task.job, slot].memory[start:]
            content = decode(where, memory)
            found.append((content[:3], low, high))
        return found

    def _answer(self, task: Task, reply: Reply, memory: NDArray[np.uint8]) -> None:
        fds: tuple[int, ...] = ()
        spilled: list[Segment] = []

        def spill(nbytes: int) -> NDArray[np.uint8]:
            spilled.append(Segment.shared(nbytes))
            return spilled[0].memory

        if reply.status == "failed":
            reply.value = error_to_bytes(reply.value, describe(reply.value))
        elif reply.status == "bad":
            reply.value = [
                (bad.row, bad.index, bad.position, error_to_bytes(bad.error, describe(bad.error)))
                for bad in reply.value
            ]
        if reply.value is not None:
            low, high = task.region
            region = Region(memory[low:high])
            region.used = reply.written  # what collates have made there is not to be written over
            try:
                reply.where = encode(reply.value, region, spill)
            except Exception as error:
                failure = PipelineError(
                    f"a batch cannot be sent to the loop: {type(error).__name__}: {error}; return arrays, "
                    "numbers, strings and plain containers of them"
                )
                reply = Reply(task.id, "failed", worker=self.worker)
                reply.where = encode(error_to_bytes(failure, ""), Region(memory[low:high]), spill)
            reply.value = None
        if spilled:
            reply.spilled = spilled[0].nbytes
            fds = (spilled[0].fd,)
        self.channel.send(reply, fds)
        for segment in spilled:
            segment.close()


def loading_failed(error: BaseException) -> BaseException:
    """Say that it was the arrival of the pipeline in the worker that failed."""
    error.add_note("(while the pipeline was being loaded in a worker process)")
    return error


def child_main(
    channel: Channel, worker: int, stacks: int, recipes: dict[int, Any], setup: Any, parent: int
) -> None:
    """Run a worker process to its end; never returns."""
    status = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for name in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        with contextlib.suppress(Gone):
            Child(channel, worker, recipes, setup).run()
        status = 0
    except BaseException as error:
        print(f"infeed worker {worker} failed:\n{describe(error)}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def spawned_main(fd: int, stacks: int, worker: int, parent: int) -> None:
    """The entry of a worker that is a fresh interpreter (start_method="spawn")."""
    channel = Channel(socket.socket(fileno=fd))
    child_main(channel, worker, stacks, {}, None, parent)
