"""What the machine can do at most: the same bytes gathered by bare numpy, the bare work on all cores."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np

from benchmarks.data import TRAIN_SECONDS, Array

BUFFERS = 2  # of each thread, used in turn


class TakeRate:
    """Samples per second of `np.take(out=)` into a few buffers, the order being known beforehand."""

    note = ""

    def __init__(self, x: Array, batch: int, threads: int, seconds: float):
        order = np.random.default_rng(0).permutation(len(x))
        self.steps = [order[low : low + batch] for low in range(0, len(x), batch)]
        self.x, self.seconds, self.passes = x, seconds, 1
        shape = (batch, *x.shape[1:])
        self.buffers = [[np.zeros(shape, x.dtype) for _ in range(BUFFERS)] for _ in range(threads)]

    def warm_up(self) -> None:
        """Find out how many passes fill a turn."""
        samples = len(self.x)
        self._run(1)
        self.passes = max(1, int(np.ceil(self.seconds * self._run(1) / samples)))

    def turn(self) -> float:
        """One turn."""
        return self._run(self.passes)

    def _run(self, passes: int) -> float:
        steps = chain.from_iterable(repeat(self.steps, passes))
        threads = [
            threading.Thread(target=self._take, args=(steps, buffers), daemon=True) for buffers in self.buffers[1:]
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        self._take(steps, self.buffers[0])
        for thread in threads:
            thread.join()
        return passes * len(self.x) / (time.perf_counter() - began)

    def _take(self, steps: Iterator[Array], buffers: list[Array]) -> None:
        """Take steps from the iterator that all threads share, until there are none left."""
        x, turn = self.x, 0
        for indices in steps:
            np.take(x, indices, axis=0, out=buffers[turn][: len(indices)], mode="clip")
            turn = (turn + 1) % BUFFERS

    def close(self) -> None:
        """Nothing to end."""


class TakeOnce:
    """Seconds that threads take together for one step of `np.take(out=)` into warm memory."""

    note = ""

    def __init__(self, x: Array, rows: int, threads: int):
        order = np.random.default_rng(0).permutation(len(x))[:rows]
        out = np.zeros((rows, *x.shape[1:]), x.dtype)
        self.x = x
        self.parts = list(zip(np.array_split(order, threads), np.array_split(out, threads), strict=True))

    def warm_up(self) -> None:
        """Touch everything once."""
        self.turn()

    def turn(self) -> float:
        """One turn."""
        threads = [threading.Thread(target=self._take, args=part, daemon=True) for part in self.parts[1:]]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        self._take(*self.parts[0])
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    def _take(self, indices: Array, out: Array) -> None:
        np.take(self.x, indices, axis=0, out=out, mode="clip")

    def close(self) -> None:
        """Nothing to end."""


class BareProcesses:
    """Samples per second of the dataset's own work in bare processes that hand nothing over."""

    note = ""

    def __init__(self, dataset: Any, processes: int):
        self.dataset = dataset
        context = multiprocessing.get_context("fork")
        pairs = [context.Pipe() for _ in range(processes)]
        self.pipes = [ours for ours, _ in pairs]
        self.processes = [context.Process(target=self._serve, args=(theirs,)) for _, theirs in pairs]
        for process in self.processes:
            process.start()

    def _serve(self, pipe: Any) -> None:
        while (span := pipe.recv()) is not None:
            for index in range(*span):
                self.dataset[index]
            pipe.send(len(range(*span)))

    def warm_up(self) -> None:
        """Once through."""
        self.turn()

    def turn(self) -> float:
        """One turn: every process does its share at the same time."""
        samples, share = len(self.dataset), len(self.pipes)
        began = time.perf_counter()
        for place, pipe in enumerate(self.pipes):
            pipe.send((place, samples, share))
        done = sum(pipe.recv() for pipe in self.pipes)
        return float(done / (time.perf_counter() - began))

    def close(self) -> None:
        """Let the processes end."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


class TrainingAlone:
    """Seconds of the training steps with no data to wait for."""

    note = ""

    def __init__(self, steps: int):
        self.steps = steps

    def warm_up(self) -> None:
        """Nothing to warm."""

    def turn(self) -> float:
        """One turn."""
        began = time.perf_counter()
        for _ in range(self.steps):
            time.sleep(TRAIN_SECONDS)
        return time.perf_counter() - began

    def close(self) -> None:
        """Nothing to end."""
